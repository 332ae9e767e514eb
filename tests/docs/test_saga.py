"""docs/saga.md is the table by which migrations are decided; every step of them is in it, and every fact once a stage."""

from pathlib import Path

from restow.domain.migration import saga
from restow.domain.migration.case import Stage
from restow.domain.records import FINAL, Step

PAGE = Path(__file__).parents[2] / "docs" / "saga.md"


def test_the_page_is_the_table():
    assert PAGE.read_text() == saga.page(), "run `make saga`"


def test_every_stage_is_in_the_table_and_no_fact_is_asked_in_vain():
    assert set(saga.SAGA) == set(Stage) - {Stage.OVER}
    assert {str(step) for step in Step if step not in FINAL} <= {str(stage) for stage in Stage}
    for rows in (*saga.SAGA.values(), *saga.ON_ANSWER.values()):
        texts = [fact.text for fact, _ in rows]
        assert len(texts) == len(set(texts))
