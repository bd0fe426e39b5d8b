import hashlib

import numpy as np
import torch

from hpcddm.encoders.text import words

SETTINGS = words.WordVectorsSettings(name="words", width=32)
ENCODE = words.WordVectors(SETTINGS).encode


def test_a_word_is_a_unit_vector_of_its_letters_alone():
    states = ENCODE("A cat, a CAT!")
    torch.testing.assert_close(states.norm(dim=1), torch.ones(5))
    assert torch.equal(states[0], states[2]) and torch.equal(states[1], states[3])
    assert not torch.allclose(states[0], states[1])


def test_vectors_are_the_same_on_every_machine():
    values = np.array(list(hashlib.shake_256(b"cat").digest(32))) - 127.5
    np.testing.assert_allclose(ENCODE("cat")[0], values / np.sqrt((values**2).sum()), rtol=1e-6)
