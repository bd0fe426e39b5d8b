"""Words of a command in the batch script: one word each for bash, whatever they hold."""

import pytest

from hpcddm.config.site import Site
from hpcddm.errors import UserError
from hpcddm.launch.script_template import render

EVIL = {
    "globals": "{{ cycler.__init__.__globals__.os.system('touch CANARY') }}",
    "classes": "{{ ().__class__.__mro__[1].__subclasses__() }}",
    "format": "{{ '{0.__class__.__init__.__globals__}'.format(site) }}",
    "filter": "{{ ''|attr('__class__') }}",
    "another file": "{% include '../../etc/passwd' %}",
    "a zero": "{{ 1 // 0 }}",
    "a wrong key": "{{ site['no such'] }}",
    "a long range": "{% for n in range(10000000) %}{% endfor %}",
}


@pytest.mark.parametrize("text", EVIL.values(), ids=EVIL)
def test_a_template_reaches_nothing_but_its_values(tmp_path, text):
    site, canary, place = Site(name="here", scheduler="slurm"), tmp_path / "canary", "slurm/python_env.sh.j2"
    parts, values = {place: text.replace("CANARY", str(canary))}, {"variants": "", "cache": tmp_path}
    with pytest.raises(UserError) as error:
        render(f"{{% include '{place}' %}}", "job.sbatch.j2", site, site.resources_for("train"), parts, **values)
    assert "\n" not in str(error.value) and "root:" not in str(error.value) and not canary.exists()
