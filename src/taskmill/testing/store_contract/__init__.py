"""The behaviour that every store must have, as tests. To test a store, subclass and provide a ``store`` fixture::

class TestMyStore(StoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        ...  # an open, empty store
"""

from taskmill.testing.store_contract.budgets import Budgets
from taskmill.testing.store_contract.control import ControlAndUpkeep
from taskmill.testing.store_contract.controls import Controls
from taskmill.testing.store_contract.cron import CronTasks
from taskmill.testing.store_contract.finishing import Finishing
from taskmill.testing.store_contract.reading import Reading
from taskmill.testing.store_contract.samples import new_task
from taskmill.testing.store_contract.storing import StoringAndClaiming

__all__ = ["StoreContract", "new_task"]


class StoreContract(StoringAndClaiming, Finishing, ControlAndUpkeep, Controls, CronTasks, Reading, Budgets):
    """The behaviour of a store, one law per test."""
