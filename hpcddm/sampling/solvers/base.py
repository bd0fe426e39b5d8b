"""Bases of the solvers: one step of the sampling ODE, on the linear path or in one model's own coordinates."""

from abc import abstractmethod
from collections.abc import Callable

from torch import Tensor

from hpcddm.config.variants import S, Variant
from hpcddm.diffusion.objectives.conversions import Images, Level


class Solver(Variant[S]):
    """Solver of the sampling ODE on the linear path.

    The velocity is asked at times t > 0 only: at 0 some conversions of predictions divide by t. In the last step
    `t_next` is 0, so a method that evaluates the velocity there must end with another one.
    """

    @abstractmethod
    def step(self, velocity: Callable[[Tensor, float], Tensor], x: Images, t: float, t_next: float) -> Images:
        """Step from time t down to `t_next`.

        Args:
            velocity: Function (x, t) -> velocity, of the shape of x, for t in (0, 1].
            x: (N, C, H, W) states at t.
            t: Time of the linear path in (0, 1].
            t_next: Next time in [0, t).

        Returns:
            (N, C, H, W) states at `t_next`.
        """


class NativeSolver(Variant[S]):
    """Solver in the coordinates of one model, on its training path."""

    @abstractmethod
    def step(self, x0: Images, eps: Images, level: Level, next_level: Level, fresh: Callable[[], Tensor]) -> Images:
        """Compute the state at the next noise level.

        Args:
            x0: (N, C, H, W) model's estimate of the image at the current level.
            eps: (N, C, H, W) model's estimate of the noise at the current level.
            level: Current level: alpha and sigma, float64 (1,).
            next_level: Next level, of the same form.
            fresh: Function () -> standard normal numbers of the shape of x0.

        Returns:
            (N, C, H, W) states at the next level.
        """
