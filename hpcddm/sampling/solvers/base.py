"""Bases of the solvers: one step of the sampling ODE, on the linear path or in one model's own coordinates."""

from abc import abstractmethod
from collections.abc import Callable

from torch import Tensor

from hpcddm.config.variants import S, Variant
from hpcddm.diffusion.objectives.conversions import Images, Level


class Solver(Variant[S]):
    """A solver on the linear path."""

    @abstractmethod
    def step(self, velocity: Callable[[Tensor, float], Tensor], x: Images, t: float, t_next: float) -> Images:
        """Step x from t down to `t_next`; velocity: (x, t) -> velocity, of the shape of x."""


class NativeSolver(Variant[S]):
    """A solver in the coordinates of one model, on the path that it was trained on."""

    @abstractmethod
    def step(self, x0: Images, eps: Images, level: Level, next_level: Level, fresh: Callable[[], Tensor]) -> Images:
        """Compute the state at the next level from the x0 and eps of the model at this one.

        level: alpha and sigma, float64 (1,); fresh: () -> standard normal numbers of the shape of x0.
        """
