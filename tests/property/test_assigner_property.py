"""Partitions that a supervisor places: one living owner each, also through deaths and late news."""

from hypothesis import given
from hypothesis import strategies as st

from walle_stream.app.cluster.assigner import Assigner
from walle_stream.reading.assigned import Assignment, Held, Placed

COUNT = 7
HOSTS = 4

steps = st.one_of(
    st.tuples(st.just("place"), st.just(0)),
    st.tuples(st.sampled_from(["obey", "see", "die", "leave", "come"]), st.integers(0, HOSTS - 1)),
    st.tuples(st.just("supervisor"), st.just(0)),
)


class World:
    """Hosts that obey when they like, and a supervisor that sees them when it likes."""

    def __init__(self):
        self.assigner = Assigner(COUNT)
        self.hosts = {0: Assignment()}
        self.generations = dict.fromkeys(range(COUNT), 0)

    def step(self, what, host):
        if what == "place":
            able = [each for each in self.hosts if each != self.leaving]
            for each, placed in self.assigner.place(able).items():
                self.hosts[each].place(*placed)
        elif what == "supervisor":
            self.assigner = Assigner(COUNT)
            for each, assignment in self.hosts.items():
                self.assigner.see(each, assignment.held)
        elif what == "come" and host not in self.hosts:
            self.hosts[host] = Assignment()
        elif host in self.hosts:
            getattr(self, f"_{what}", lambda _host: None)(host)

    leaving = None

    def _obey(self, host):
        assignment = self.hosts[host]
        wanted, placed = assignment.held.wanted, assignment.held.placed
        for number in wanted.numbers - placed.numbers:
            assert wanted.generation > self.generations[number]
            self.generations[number] = wanted.generation
        assignment.tell(placed=wanted)
        owned = [number for each in self.hosts.values() for number in each.held.placed.numbers]
        assert len(owned) == len(set(owned))

    def _see(self, host):
        self.assigner.see(host, self.hosts[host].held)

    def _die(self, host):
        del self.hosts[host]
        self.assigner.forget(host)

    def _leave(self, host):
        self.leaving = host


@given(st.lists(steps, max_size=60))
def test_a_partition_has_one_owner_and_at_last_each_has_one(given_steps):
    world = World()
    for what, host in given_steps:
        world.step(what, host)
    world.leaving = None
    world.step("come", 1)
    for _ in range(3):
        for host in world.hosts:
            world._see(host)
        world.step("place", 0)
        for host in world.hosts:
            world._obey(host)
    shares = [len(each.held.placed.numbers) for each in world.hosts.values()]
    assert sum(shares) == COUNT
    assert max(shares) - min(shares) <= 1


def test_what_another_one_had_later_is_placed_once_more():
    assigner = Assigner(1)
    assigner.see(0, Held())
    assert assigner.place([0]) == {0: Placed(1, frozenset({0}))}
    told = Placed(1, frozenset({0}))
    assigner.see(0, Held(Placed(1, frozenset()), told, is_ended=False, taken_in=9))
    assert assigner.place([0]) == {0: Placed(10, frozenset({0}))}


def test_a_run_is_over_when_every_partition_was_read_to_its_end_where_it_is():
    assigner = Assigner(2)
    for host in (0, 1):
        assigner.see(host, Held())
    placed = assigner.place([0, 1])
    for host, is_ended in ((0, True), (1, False)):
        assigner.see(host, Held(placed[host], placed[host], is_ended=is_ended))
    assert not assigner.is_over(0)
    assigner.see(1, Held(placed[1], placed[1], is_ended=True))
    assert assigner.is_over(0)
    assigner.done(0)
    assert not assigner.place([1])
    assert assigner.is_over(1)
