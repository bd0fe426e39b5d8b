"""Units that sampling reads: for a routing strategy, the monolith, the student, or a single expert."""

from hpcddm.config.experiment import Experiment
from hpcddm.config.sampling import parse_strategy, strategy_usage
from hpcddm.errors import ConfigError
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import require_complete, survey_units
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import EXPERT_LISTS, MONOLITH, ROUTER, STUDENT, expert_keys, extra_expert_keys


def units_of_strategy(experiment: Experiment, strategy: str, option: str = "strategy") -> list[str]:
    """List the units that sampling with a strategy reads.

    Args:
        experiment: The experiment.
        strategy: A routing strategy such as `top-1`, or a single model: `monolith`, `student`, `expert-2`, or the name
            of an extra expert.
        option: Name of the option in the error message.

    Raises:
        ConfigError: If the strategy is invalid; the message lists the valid names.
    """
    experts, alone = expert_keys(experiment), single_models(experiment)
    if strategy in alone:
        return [alone[strategy]]
    if (reason := _strategy_error(experiment, strategy)) is not None:
        single = [f"expert-{index}" for index in range(len(experts))]
        dense = [key.split("/")[1] for key in alone.values() if key not in experts]
        valid = ", ".join([strategy_usage(), *single, *dict.fromkeys(dense)])
        raise ConfigError(f"{option} {strategy}: {reason}; valid names: {valid}")
    settings = parse_strategy(strategy)
    # If experts may be missing, the router assigns the samples of their clusters.
    may_miss = experiment.evaluate.min_experts is not None
    posterior = [ROUTER] * (settings.needs_router or may_miss) + [EXPERT_LISTS] * (not settings.needs_router)
    return [*posterior, *experts]


def missing_experts(experiment: Experiment, run: RunDir, needed: list[str]) -> list[str]:
    """List the incomplete units without which an ensemble can sample.

    Args:
        experiment: The experiment; `evaluate.min_experts` sets how many experts sampling needs.
        run: The run.
        needed: Units that the strategy reads, as `units_of_strategy` lists them.

    Raises:
        UserError: If a unit is incomplete that sampling needs.
    """
    states = survey_units(plan_units(experiment), run)
    missing = [key for key in dict.fromkeys([EXPERT_LISTS, *needed]) if states[key].state is not State.COMPLETE]
    experts = [key for key in needed if key in expert_keys(experiment)]
    minimum = experiment.evaluate.min_experts or len(experts)
    is_enough = len(experts) - len(set(missing) & set(experts)) >= minimum
    require_complete(states, run, *(key for key in missing if key not in experts or not is_enough))
    return missing


def single_models(experiment: Experiment) -> dict[str, str]:
    """Return the units of single models, by every valid name, such as both `expert-2` and `expert-02`."""
    experts = expert_keys(experiment)
    dense = [MONOLITH] * experiment.monolith.enabled + [STUDENT] * (experiment.distill is not None)
    return {f"expert-{index}": key for index, key in enumerate(experts)} | {
        key.split("/")[1]: key for key in [*experts, *extra_expert_keys(experiment), *dense]
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
