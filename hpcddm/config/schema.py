"""Base of all schemas: strict models, and variants named by their files."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from hpcddm.config import variants
from hpcddm.config.validation_errors import Origins, format_errors, unwrap_schema
from hpcddm.errors import ConfigError

if TYPE_CHECKING:
    from hpcddm.config.pretrained import PretrainedFile

M = TypeVar("M", bound="StrictModel")
Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
_ODD = r"\s\p{Cc}'\"`;$\\"
"""Characters at which a shell splits or changes a word."""
Word = Annotated[str, Field(pattern=rf"^[^{_ODD}#]+$")]
"""Text that is one word in a batch script; in an #SBATCH line a '#' begins a comment."""
JOB_VARIABLE = r"\$[A-Za-z_][A-Za-z0-9_]*|\$\{[A-Za-z_][A-Za-z0-9_]*\}"
CommandWord = Annotated[str, Field(pattern=rf"^([^{_ODD}~]|{JOB_VARIABLE})([^{_ODD}]|{JOB_VARIABLE})*$")]
"""One word of a command in a job, where $NAME and ${NAME} are variables of the job, and ~ is not a home."""
PATH = object()
"""Mark of a field that holds a path."""
PathSetting = Annotated[str, Field(min_length=1), PATH]
"""Path of a file or folder: in YAML relative to the file itself, in a run to the run, and under no fingerprint."""


class StrictModel(BaseModel):
    """A frozen schema that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    not_hashed: ClassVar[frozenset[str]] = frozenset()
    """Keys that the fingerprint of these settings leaves out, such as paths and intervals of saving."""
    hashed_if_changed: ClassVar[frozenset[str]] = frozenset()
    """Keys that it leaves out while they have their default: they are younger than runs that stay complete."""

    @model_validator(mode="before")
    @classmethod
    def _name_default_variants(cls, values: Any) -> Any:
        """Let a mapping without `name` set keys of the default variant."""
        if not isinstance(values, dict):
            return values
        named = {key: field.default for key, field in cls.model_fields.items() if isinstance(field.default, dict)}
        begun = {
            key: default
            for key, default in named.items()
            if isinstance(given := values.get(key), dict) and "name" not in given
        }
        return values | {key: default | values[key] for key, default in begun.items()}

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        annotation = cls.model_fields[str(info.field_name)].annotation
        takes_bool, words = _takes_bool(annotation), [one for one in get_args(annotation) if isinstance(one, str)]
        if isinstance(value, bool) and not takes_bool:
            raise PydanticCustomError("number", "needs a value of another kind")
        # Else 1, 'yes' and 'off' would be truth values.
        if takes_bool and not isinstance(value, bool | None) and value not in words:
            raise PydanticCustomError("number", "needs {words} or false", {"words": ", ".join([*words, "true"])})
        return value


class VariantSettings(StrictModel):
    """Base of the `Settings` class in every variant file; `name` is the name of the file.

    A subclass that defines `package` is the base of a variant package. As the type of a field it accepts any variant
    whose settings derive from it. The value of the field is a mapping whose `name` selects the variant; that variant's
    settings class validates the mapping.
    """

    package: ClassVar[str]
    """Folder of the variants' files below the package or the user's folder, such as 'sampling/solvers'."""
    pretrained: ClassVar["tuple[PretrainedFile, ...]"] = ()
    """Pretrained weights that it needs; `hpcddm prefetch` fetches them."""
    downloads: ClassVar[tuple[str, ...]] = ()
    """Names of downloads that it needs; `hpcddm prefetch` fetches them."""

    name: str

    def check(self, experiment: Any) -> None:
        """Check these settings against the rest of the experiment.

        Args:
            experiment: The experiment, a `config.experiment.Experiment`.

        Raises:
            ValueError: The settings conflict with the rest of the experiment.
        """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let the base of a variant package pick the variant by its name, and write all fields of it."""
        schema = handler(source)
        if "package" not in vars(cls):
            return schema
        every_field = core_schema.simple_ser_schema("any")
        return core_schema.no_info_before_validator_function(cls._pick, schema, serialization=every_field)

    @classmethod
    def _pick(cls, value: Any) -> Any:
        """Find the variant that the mapping names and validate the mapping by that variant's settings."""
        if isinstance(value, VariantSettings):
            return value
        if not isinstance(value, dict) or "name" not in value:
            valid = ", ".join(variants.list_variants(cls.package, cls))
            raise PydanticCustomError("variant", "needs a mapping with 'name', one of: {valid}", {"valid": valid})
        if value["name"] not in variants.list_variants(cls.package, cls):
            name, valid = str(value["name"]), ", ".join(variants.list_variants(cls.package, cls))
            context = {"name": name, "valid": valid}
            raise PydanticCustomError("variant", "unknown name '{name}'; valid names: {valid}", context)
        return variants.settings_class(cls.package, value["name"]).model_validate(value)


def inner_error(text: str) -> PydanticCustomError:
    """Return the error of settings that contradict each other; text: first the key of one of them, then a colon."""
    return PydanticCustomError("inner", "{text}", {"text": text})


def default_variant(name: str) -> Any:
    """Return the default of a field whose type is the base of a variant package.

    Args:
        name: Name of the default variant, which gets its own default settings.
    """
    return Field(default={"name": name}, validate_default=True)


def validate(schema: type[M], values: Any, origins: str | Origins, parse: Callable[[Any], M] | None = None) -> M:
    """Validate a mapping.

    Args:
        schema: Model that the values must match.
        values: Values from a file or the command line.
        origins: File or command line that the values come from, for the error.
        parse: Function that validates the values and may check more than the schema does; by default the schema alone.

    Returns:
        The validated model.

    Raises:
        ConfigError: With one line for each mistake that names the place, the key and the valid values.
    """
    origins = origins if isinstance(origins, Origins) else Origins(origins)
    if not isinstance(values, dict):
        raise ConfigError(f"{origins.file}: needs a mapping of keys, found {type(values).__name__}")
    try:
        return (parse or schema.model_validate)(values)
    except ValidationError as error:
        raise ConfigError(*format_errors(error, schema, values, origins)) from None


def settings_to_hash(settings: StrictModel) -> dict[str, Any]:
    """Return the settings that enter a fingerprint, nested as in the YAML file.

    Paths, the keys in `not_hashed`, and the keys in `hashed_if_changed` that have their defaults do not enter.
    """
    kept: dict[str, Any] = {}
    for key, field in type(settings).model_fields.items():
        if key not in settings.not_hashed and not _holds_paths(field.annotation, field.metadata):
            value = getattr(settings, key)
            kept[key] = list(map(_to_hash, value)) if isinstance(value, list) else _to_hash(value)
            if key in settings.hashed_if_changed and kept[key] == field.default:
                del kept[key]
    return kept


def _to_hash(value: Any) -> Any:
    return settings_to_hash(value) if isinstance(value, StrictModel) else value


def default_of_key(schema: type[StrictModel], key: str) -> Any:
    """Return the default of a dotted key as `settings_to_hash` writes it.

    Args:
        schema: Model with the key.
        key: Key such as 'evaluate.steps'.

    Returns:
        The default; None for a key without one.
    """
    first, _, rest = key.partition(".")
    field = schema.model_fields.get(first)
    if field is None:
        return None
    if rest and (field.is_required() or isinstance(field.default, StrictModel)):
        inner = unwrap_schema(field.annotation)
        return default_of_key(inner, rest) if isinstance(inner, type) and issubclass(inner, StrictModel) else None
    default = None if field.is_required() else field.default
    for part in rest.split(".") if rest else ():
        default = default.get(part) if isinstance(default, dict) else None
    return default


def _takes_bool(annotation: Any) -> bool:
    """Return True if the type is bool, bool and None, or a literal with True."""
    return bool in (annotation, *get_args(annotation)) or any(one is True for one in get_args(annotation))


def _holds_paths(annotation: Any, metadata: Sequence[Any] = ()) -> bool:
    """Return True if the type is a path, an optional path, or a list of paths."""
    inner = get_args(annotation)
    return PATH in (*metadata, *inner) or any(map(_holds_paths, inner))


def variants_of(settings: StrictModel, place: str = "") -> list[tuple[str, VariantSettings]]:
    """List all variants that the settings name.

    Args:
        settings: Settings to search, with all nested ones.
        place: Dotted key of `settings`; empty for a whole experiment.

    Returns:
        Pairs of a dotted key and the settings of a variant.
    """
    listed = []
    for key in type(settings).model_fields:
        value = getattr(settings, key)
        inner = f"{place}.{key}" if place else key
        several = [(f"{inner}.{number}", item) for number, item in enumerate(value)] if isinstance(value, list) else []
        for where, item in several or [(inner, value)]:
            if isinstance(item, VariantSettings):
                listed.append((where, item))
            if isinstance(item, StrictModel):
                listed.extend(variants_of(item, where))
    return listed
