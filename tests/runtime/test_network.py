import socket

import pytest

from hpcddm.errors import UserError
from hpcddm.runtime.network import own_address


@pytest.mark.parametrize("answer", ["127.0.1.1", None])
def test_a_host_name_that_no_other_node_reaches_names_the_key_to_set(monkeypatch, answer):
    def resolve(host):
        if answer is None:
            raise OSError(-2, "Name or service not known")
        return answer

    monkeypatch.setattr(socket, "gethostbyname", resolve)
    monkeypatch.setattr(socket, "gethostname", lambda: "node-7")
    with pytest.raises(UserError, match="node-7: .* set the site key network_interface to one of: .*lo"):
        own_address(2, None)
    assert own_address(1, None) == "127.0.0.1"
    assert own_address(2, "lo") == "127.0.0.1"
    monkeypatch.setattr(socket, "gethostbyname", lambda host: "10.0.0.7")
    assert own_address(2, None) == "10.0.0.7"


def test_an_interface_that_is_not_there_names_the_key_and_those_that_are():
    with pytest.raises(UserError, match="site key network_interface: .* no interface ib7 .*it has: .*lo"):
        own_address(2, "ib7")
