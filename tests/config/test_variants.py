import re
from types import ModuleType

import pytest
from pydantic import ValidationError

from hpcddm.config import variants
from hpcddm.config.models import ClassifierModelSettings, DenoiserModelSettings, RouterModelSettings
from hpcddm.config.objectives import ScheduleSettings
from hpcddm.config.sampling import parse_strategy
from hpcddm.config.schema import VariantSettings, validate
from hpcddm.diffusion.objectives.schedules.base import Schedule
from hpcddm.errors import ConfigError
from tests.helpers import REPOSITORY, python

PACKAGE = REPOSITORY / "hpcddm"
PACKAGES = sorted(
    {
        declared
        for file in PACKAGE.rglob("*.py")
        for declared in re.findall(r'^    package: ClassVar\[str\] = "(.+)"$', file.read_text(), re.M)
    }
)
VARIANTS = [(package, name) for package in PACKAGES for name in variants.list_variants(package)]


def test_every_package_of_the_schema_has_variants():
    assert {package for package, _ in VARIANTS} == set(PACKAGES)
    known = "sources encoders/image clustering models diffusion/objectives sampling/strategies"
    assert set(PACKAGES) >= set(known.split())


@pytest.mark.parametrize("package, name", VARIANTS)
def test_the_settings_without_the_code_are_the_settings_of_the_code(package, name):
    light, module = variants.settings_class(package, name), variants.import_variant(package, name)
    real = getattr(module, light.__name__)
    assert issubclass(light, VariantSettings) and light.__doc__
    assert light.model_json_schema() == real.model_json_schema()
    assert light.not_hashed == real.not_hashed


def test_all_settings_load_without_heavy_imports():
    code = f"from hpcddm.config import variants\nfor one in {VARIANTS!r}: variants.settings_class(*one)\n"
    done = python(f"{code}import sys\nprint({{'torch', 'numpy', 'faiss', 'PIL', 'timm'}} & sys.modules.keys())")
    assert (done.stdout, done.stderr) == ("set()\n", "")


@pytest.mark.parametrize("name", ["", "dit/..", "../config", "DiT", "parts", "dit\n"])
def test_an_unknown_variant_lists_the_valid_ones(name):
    with pytest.raises(ConfigError, match="valid names: .*dit, router_dit"):
        variants.import_variant("models", name)


def test_roles_part_a_room():
    bases = (DenoiserModelSettings, RouterModelSettings, ClassifierModelSettings)
    roles = [variants.list_variants("models", base) for base in bases]
    assert all(roles) and sorted(sum(roles, ())) == list(variants.list_variants("models"))


@pytest.mark.parametrize("word", ["top-0", "top--1", "top-", "Full", "top-1 ", "fullest", ""])
def test_an_unknown_word_lists_the_valid_ones(word):
    with pytest.raises(ConfigError, match=r"valid names: full, nucleus-0\.9, .*, top-1, top-2, \.\.\."):
        parse_strategy(word)


def test_a_room_base_refuses_what_is_not_in_its_room():
    with pytest.raises(ValidationError, match="unknown name 'min_snr'; valid names: cosine, linear, "):
        ScheduleSettings.model_validate({"name": "min_snr"})
    with pytest.raises(ValidationError, match="needs a mapping with 'name', one of: cosine, linear, "):
        ScheduleSettings.model_validate("linear")
    with pytest.raises(ConfigError, match="^x: beta_min: input should be greater than 0, found -1$"):
        validate(ScheduleSettings, {"name": "linear_beta", "beta_min": -1}, "x")


def test_a_file_without_the_class_is_named():
    class OtherBase(variants.Variant):
        """A base that nothing derives from."""

    with pytest.raises(ConfigError, match=r"schedules/linear.py: has 0 classes derived from OtherBase, needs one"):
        variants.create(OtherBase, ScheduleSettings.model_validate({"name": "linear"}))


def test_a_class_without_a_method_of_the_contract_is_named():
    module = ModuleType("mine")
    module.__file__ = "diffusion/objectives/schedules/mine.py"
    exec("class Mine(Schedule):\n    def level(self, t): ...", vars(module) | {"Schedule": Schedule}, vars(module))
    module.Mine.__module__ = "mine"
    with pytest.raises(ConfigError, match="^diffusion/objectives/schedules/mine.py: Mine lacks log_snr, time_at$"):
        variants._implementation(Schedule, module)


def test_a_file_with_two_classes_of_settings_is_named(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("class A(BSettings): ...\nclass ASettings: ...\nclass CSettings: ...\n")
    message = "mine.py: has 2 classes of settings, ASettings, CSettings; a variant needs one"
    with pytest.raises(ConfigError, match=message):
        variants._settings_name(file)


def test_every_room_is_a_package_so_that_an_installation_holds_it():
    folders = {file.parent for file in PACKAGE.rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
