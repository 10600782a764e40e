"""Two and four ranks that the tests of a file share."""

import pytest
from ranks import Ranks


def _ranks(size):
    ranks = Ranks(size)
    yield ranks
    ranks.close()


@pytest.fixture(scope="module")
def two():
    yield from _ranks(2)


@pytest.fixture(scope="module")
def four():
    yield from _ranks(4)
