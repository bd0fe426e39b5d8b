"""Base of all schemas: strict models, and variants named by their files."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from hpcddm.config import variants
from hpcddm.config.mistakes import Origins, lines_of, model_in
from hpcddm.config.pretrained import PretrainedFile
from hpcddm.errors import ConfigError

M = TypeVar("M", bound="StrictModel")
Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
_ODD = r"\s\p{Cc}'\"`;$\\"
"""Characters that make a word several to a shell, or another one."""
Word = Annotated[str, Field(pattern=rf"^[^{_ODD}#]+$")]
"""Text that stands in a batch script as one word; in a line of #SBATCH a '#' begins a comment."""
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

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        takes_bool = _takes_bool(cls.model_fields[str(info.field_name)].annotation)
        if isinstance(value, bool) and not takes_bool:
            raise PydanticCustomError("number", "needs a value of another kind")
        # Else 1, 'yes' and 'off' would be truth values.
        if takes_bool and not isinstance(value, bool | None):
            raise PydanticCustomError("number", "needs true or false")
        return value


class VariantSettings(StrictModel):
    """The base of the `Settings` class in every variant file; `name` is the file's name.

    A subclass that defines `room` is a room base: the type of a field that takes any variant of the room whose Settings
    derive from it. The field's value is a mapping whose `name` picks the variant that validates it.
    """

    room: ClassVar[str]
    """Folder of the variants' files below the package or the user's folder, such as 'sampling/solvers'."""
    pretrained: ClassVar[tuple[PretrainedFile, ...]] = ()
    """Pretrained weights that it needs; `hpcddm prefetch` fetches them."""
    collections: ClassVar[tuple[str, ...]] = ()
    """Names of collections that it needs; `hpcddm prefetch` fetches them."""

    name: str

    def check(self, experiment: Any) -> None:
        """Raise ValueError if these settings cannot go together with the rest of the experiment."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Make a room base pick the variant by its name, and write it with the variant's own fields."""
        schema = handler(source)
        if "room" not in vars(cls):
            return schema
        every_field = core_schema.simple_ser_schema("any")
        return core_schema.no_info_before_validator_function(cls._pick, schema, serialization=every_field)

    @classmethod
    def _pick(cls, value: Any) -> Any:
        """Find the variant that the mapping names and validate the rest by its own settings."""
        if isinstance(value, VariantSettings):
            return value
        if not isinstance(value, dict) or "name" not in value:
            valid = ", ".join(variants.names(cls.room, cls))
            raise PydanticCustomError("variant", "needs a mapping with 'name', one of: {valid}", {"valid": valid})
        if value["name"] not in variants.names(cls.room, cls):
            name, valid = str(value["name"]), ", ".join(variants.names(cls.room, cls))
            context = {"name": name, "valid": valid}
            raise PydanticCustomError("variant", "unknown name '{name}'; valid names: {valid}", context)
        return variants.settings_class(cls.room, value["name"]).model_validate(value)


def default_variant(name: str) -> Any:
    """Return the default of a field whose type is a room base: the variant with its own defaults."""
    return Field(default={"name": name}, validate_default=True)


def validate(schema: type[M], values: Any, origins: str | Origins, parse: Callable[[Any], M] | None = None) -> M:
    """Validate a mapping, written in the file or on the command line that `origins` names.

    parse: validates the values, and more than the schema does; without it the schema alone.

    Raises `ConfigError` with one line for every mistake, which names the place, the key and the valid values.
    """
    origins = origins if isinstance(origins, Origins) else Origins(origins)
    parse = parse or schema.model_validate
    if not isinstance(values, dict):
        raise ConfigError(f"{origins.file}: needs a mapping of keys, found {type(values).__name__}")
    try:
        return parse(values)
    except ValidationError as error:
        raise ConfigError(*lines_of(error, schema, values, origins, parse)) from None


def hashed(settings: StrictModel) -> dict[str, Any]:
    """Return the settings that go into a fingerprint, nested as in the YAML file."""
    kept: dict[str, Any] = {}
    for key, field in type(settings).model_fields.items():
        if key not in settings.not_hashed and not _holds_paths(field.annotation, field.metadata):
            value = getattr(settings, key)
            many = isinstance(value, list)
            inner = [hashed(item) if isinstance(item, StrictModel) else item for item in (value if many else [value])]
            kept[key] = inner if many else inner[0]
            if key in settings.hashed_if_changed and kept[key] == field.default:
                del kept[key]
    return kept


def default_at(schema: type[StrictModel], key: str) -> Any:
    """Return the default of a dotted key, as `hashed` would write it; None for a key that has none."""
    first, _, rest = key.partition(".")
    field = schema.model_fields.get(first)
    if field is None:
        return None
    if rest and (field.is_required() or isinstance(field.default, StrictModel)):
        inner = model_in(field.annotation)
        return default_at(inner, rest) if isinstance(inner, type) and issubclass(inner, StrictModel) else None
    default = None if field.is_required() else field.default
    for part in rest.split(".") if rest else ():
        default = default.get(part) if isinstance(default, dict) else None
    return default


def _takes_bool(annotation: Any) -> bool:
    """Tell if the type is that of true or false, or of these and none."""
    return bool in (annotation, *get_args(annotation))


def _holds_paths(annotation: Any, metadata: Sequence[Any] = ()) -> bool:
    """Tell if the type is that of a path, of one or none, or of several."""
    inner = get_args(annotation)
    return PATH in (*metadata, *inner) or any(map(_holds_paths, inner))


def variants_of(settings: StrictModel, place: str = "") -> list[tuple[str, VariantSettings]]:
    """List all variants that the settings name: (dotted key, settings)."""
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
