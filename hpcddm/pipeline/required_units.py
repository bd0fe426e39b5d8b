"""Units that each way of drawing reads: of a routing strategy, of the monolith, the student, or one expert alone."""

from hpcddm.config.experiment import Experiment
from hpcddm.config.strategies import parse as parse_strategy
from hpcddm.config.strategies import usage as usage_of_strategies
from hpcddm.errors import ConfigError
from hpcddm.pipeline.plan import plan
from hpcddm.pipeline.unit_states import State, require_complete, survey
from hpcddm.runs.layout import RunDir
from hpcddm.runs.unit_keys import LISTS, MONOLITH, ROUTER, STUDENT, expert_keys, joined_keys


def units_of(experiment: Experiment, strategy: str, option: str = "strategy") -> list[str]:
    """List the units whose results a strategy reads: 'monolith', 'student', 'expert-2', one that joined, or a strategy.

    option: what the error calls it. Raises `ConfigError` with the valid names.
    """
    experts, alone = expert_keys(experiment), single_models(experiment)
    if strategy in alone:
        return [alone[strategy]]
    reason = _strategy_error(experiment, strategy)
    if reason is not None:
        single = [f"expert-{index}" for index in range(len(experts))]
        dense = [key.split("/")[1] for key in alone.values() if key not in experts]
        valid = ", ".join([usage_of_strategies(), *single, *dict.fromkeys(dense)])
        raise ConfigError(f"{option} {strategy}: {reason}; valid names: {valid}")
    settings = parse_strategy(strategy)
    # Where experts may be missing, the samples of their clusters go by the router.
    may_miss = experiment.evaluate.min_experts is not None
    posterior = [ROUTER] * (settings.needs_router or may_miss) + [LISTS] * (not settings.needs_router)
    return [*posterior, *experts]


def missing_experts(experiment: Experiment, run: RunDir, needed: list[str]) -> list[str]:
    """List the incomplete experts that an ensemble samples without, when enough are complete.

    Raises `UserError` naming an incomplete unit that is indispensable.
    """
    states = survey(plan(experiment), run)
    missing = [key for key in dict.fromkeys([LISTS, *needed]) if states[key].state is not State.COMPLETE]
    experts = [key for key in needed if key in expert_keys(experiment)]
    minimum = experiment.evaluate.min_experts or len(experts)
    is_enough = len(experts) - len(set(missing) & set(experts)) >= minimum
    require_complete(states, run, *(key for key in missing if key not in experts or not is_enough))
    return missing


def single_models(experiment: Experiment) -> dict[str, str]:
    """Return the units of single models by all their names: 'expert-2' is also 'expert-02', the unit's own name."""
    experts = expert_keys(experiment)
    dense = [MONOLITH] * experiment.monolith.enabled + [STUDENT] * (experiment.distill is not None)
    return {f"expert-{index}": key for index, key in enumerate(experts)} | {
        key.split("/")[1]: key for key in [*experts, *joined_keys(experiment), *dense]
    }


def _strategy_error(experiment: Experiment, strategy: str) -> str | None:
    try:
        settings = parse_strategy(strategy)
    except (ConfigError, ValueError):
        return "unknown"
    try:
        settings.check(experiment)
    except ValueError as error:
        return str(error)
    return None
