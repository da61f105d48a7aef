"""The behaviour of a store, as tests. Each kind of store is a subclass with a ``store`` fixture::

class TestMyStore(StoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        ...  # an open, empty store
"""

from tests.store.contract.budgets import Budgets
from tests.store.contract.cancelling import CancellingAndUpkeep
from tests.store.contract.controls import Controls
from tests.store.contract.cron import CronTasks
from tests.store.contract.finishing import Finishing
from tests.store.contract.reading import Reading
from tests.store.contract.samples import new_task
from tests.store.contract.storing import StoringAndClaiming

__all__ = ["StoreContract", "new_task"]


class StoreContract(StoringAndClaiming, Finishing, CancellingAndUpkeep, Controls, CronTasks, Reading, Budgets):
    """One law per test; every store must obey all of them."""
