"""Each step of a run is taken once, while workers come and go."""

from hypothesis import given
from hypothesis import strategies as st

from train.diloco.rounds import Plan, RoundRecord, Turn, WorkerReport, plan_after

budgets = st.dictionaries(st.integers(0, 9), st.integers(1, 12), min_size=1, max_size=5)


def steps_of_round(plan, round_, total):
    return {
        n: [plan.step(n, round_, i, total) for i in range(plan.budget(n, round_, total))]
        for n in plan.budgets
    }


def test_turns_by_hand():
    """Worker 1 takes two steps while 0 takes four: 0 and 1 begin, 1 is due again halfway."""
    plan = Plan(0, 0, {0: 4, 1: 2})
    assert steps_of_round(plan, 0, 100) == {0: [0, 2, 3, 5], 1: [1, 4]}
    assert steps_of_round(plan, 1, 100) == {0: [6, 8, 9, 11], 1: [7, 10]}
    # 15 steps: 6 in each of two rounds; the last round has three left, one for each, and one over.
    assert plan.is_last(2, 15) and not plan.is_last(1, 15)
    assert steps_of_round(plan, 2, 15) == {0: [12], 1: [13]}


@given(budgets, st.integers(0, 200))
def test_a_run_takes_each_of_its_steps_once(budgets, total):
    plan, round_, taken = Plan(0, 0, budgets), 0, []
    while True:
        of_round = steps_of_round(plan, round_, total)
        assert all(steps == sorted(steps) for steps in of_round.values())
        taken += [step for steps in of_round.values() for step in steps]
        if plan.is_last(round_, total):
            break
        round_ += 1
    assert sorted(taken) == list(range(len(taken)))
    assert 0 <= total - len(taken) < len(budgets)


@given(budgets, st.integers(0, 3), st.integers(0, 3))
def test_a_turn_is_what_the_plan_says(budgets, round_, taken):
    plan = Plan(0, 0, budgets)
    worker = min(budgets)
    taken = min(taken, budgets[worker])
    found = list(Turn(plan, worker, round_, taken, 300))
    wanted = steps_of_round(plan, round_, 300)[worker][taken:]
    while not plan.is_last(round_, 300):
        round_ += 1
        wanted += steps_of_round(plan, round_, 300)[worker]
    assert found == wanted


def report(worker, steps=10, seconds=1.0, **more):
    return WorkerReport(worker=worker, tokens=1, steps=steps, seconds=seconds, **more)


def next_plan(before, members, joiners=(), missed=None, by_speed=False, round_=1):
    given = (before, round_, members, joiners, missed)
    return plan_after(*given, period_steps=10, by_speed=by_speed)


@given(st.data())
def test_plans_follow_one_another_without_a_gap(data):
    """Members stay away and join at random; every step belongs to one member of one round."""
    plan, missed, belongs = Plan.first(3, 4), {}, []
    for round_ in range(8):
        belongs += [n for steps in steps_of_round(plan, round_, 10**6).values() for n in steps]
        there = data.draw(st.sets(st.sampled_from(sorted(plan.budgets)), min_size=1))
        joiners = data.draw(st.sets(st.integers(0, 6), max_size=2))
        members = [report(n, data.draw(st.integers(1, 4))) for n in sorted(there)]
        speeds = data.draw(st.booleans())
        plan, missed = plan_after(
            plan, round_ + 1, members, sorted(joiners), missed, period_steps=4, by_speed=speeds
        )
        assert there | joiners <= set(plan.budgets)
        assert set(plan.budgets.values()) <= {1, 2, 3, 4}
        assert RoundRecord.from_table(
            RoundRecord(
                round=round_, fragments=(0,), members=tuple(members), plan=plan, missed=missed
            ).to_table()
        ).plan == plan  # fmt: skip
    assert sorted(belongs) == list(range(len(belongs)))


def test_a_worker_that_misses_two_rounds_leaves_and_may_ask_again():
    plan, missed = next_plan(Plan.first(3, 10), [report(0), report(1)])
    assert (set(plan.budgets), missed) == ({0, 1, 2}, {2: 1})
    back, missed_then = next_plan(plan, [report(0), report(1), report(2)], missed=missed, round_=2)
    assert (set(back.budgets), missed_then) == ({0, 1, 2}, {})
    plan, missed = next_plan(plan, [report(0), report(1)], missed=missed, round_=2)
    assert (set(plan.budgets), missed) == ({0, 1}, {})
    plan, _ = next_plan(plan, [report(0), report(1)], joiners=[2], round_=3)
    assert set(plan.budgets) == {0, 1, 2}


def test_slow_workers_take_fewer_steps():
    """10 steps a second, 10 in 4 seconds, 10 in 30: 10, 2.5 and a third of a step."""
    members = [report(0), report(1, seconds=4.0), report(2, seconds=30.0)]
    plan, _ = next_plan(Plan.first(3, 10), members, by_speed=True)
    assert plan.budgets == {0: 10, 1: 2, 2: 1}
    absent, _ = next_plan(plan, [report(0), report(2, 1, 3.0)], by_speed=True, round_=2)
    assert absent.budgets == {0: 10, 1: 2, 2: 1}  # worker 1 keeps its last
    assert next_plan(Plan.first(3, 10), members)[0].budgets == {0: 10, 1: 10, 2: 10}


def test_rounds_alone_move_the_order_on():
    """Two extra rounds of two workers of ten steps: the next round begins 40 steps later."""
    plan, _ = next_plan(Plan.first(2, 10), [report(0, extra=2), report(1)])
    assert plan.first_step == 20 + 40
