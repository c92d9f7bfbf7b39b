"""Partitions that a supervisor places: one living owner each, also through deaths and late news."""

from hypothesis import given
from hypothesis import strategies as st

from walle_stream.app.cluster.assigner import Assigner, Said
from walle_stream.reading.assigned import Assignment, Held, Placed

COUNT = 7
HOSTS = 4

steps = st.one_of(
    st.tuples(st.just("place"), st.just(0)),
    st.tuples(
        st.sampled_from(["obey", "see", "die", "leave", "come", "warm_up"]),
        st.integers(0, HOSTS - 1),
    ),
    st.tuples(st.just("supervisor"), st.just(0)),
)


class World:
    """Hosts that obey when they like, and a supervisor that sees them when it likes."""

    def __init__(self, standbys):
        self.standbys = standbys
        self.assigner = Assigner(COUNT, standbys)
        self.hosts = {0: Assignment()}
        self.warm = {}
        self.leaving = set()
        self.is_known = True  # of every placement, to the one supervisor
        self.generations = dict.fromkeys(range(COUNT), 0)

    def said(self, host):
        # two hosts a node
        return Said(self.hosts[host].held, self.warm.get(host, frozenset()), str(host // 2))

    def step(self, what, host):
        if what == "place":
            staying = self.hosts.keys() - self.leaving
            for each, placed in self.assigner.place(staying, self.leaving).items():
                self.hosts[each].place(*placed)
        elif what == "supervisor":
            self.is_known = False
            self.assigner = Assigner(COUNT, self.standbys)
            for each in self.hosts:
                self.assigner.see(each, self.said(each))
        elif what == "come":
            self.leaving.discard(host)
            self.hosts.setdefault(host, Assignment())
        elif host in self.hosts:
            getattr(self, what)(host)

    def obey(self, host):
        assignment = self.hosts[host]
        wanted, placed = assignment.held.wanted, assignment.held.placed
        new = wanted.numbers - placed.numbers
        latest = max((self.generations[number] for number in new), default=0)
        if new and wanted.generation <= latest:
            # the store refuses who does not come later: where all died, no supervisor knows of it
            assert not self.is_known
            held = wanted._replace(numbers=wanted.numbers - new)
            assignment.tell(placed=held, taken_in=latest)
            return
        self.generations |= dict.fromkeys(new, wanted.generation)
        assignment.tell(placed=wanted, taken_in=0)
        owned = [number for each in self.hosts.values() for number in each.held.placed.numbers]
        assert len(owned) == len(set(owned))

    def see(self, host):
        self.assigner.see(host, self.said(host))

    def die(self, host):
        del self.hosts[host]
        self.warm.pop(host, None)
        self.leaving.discard(host)
        self.assigner.forget(host)

    def leave(self, host):
        self.leaving.add(host)

    def warm_up(self, host):
        staying = self.hosts.keys() - self.leaving
        self.warm[host] = self.assigner.copies(staying).get(host, frozenset())


@given(st.lists(steps, max_size=60), st.integers(0, 2))
def test_a_partition_has_one_owner_and_at_last_each_has_one(given_steps, standbys):
    world = World(standbys)
    for what, host in given_steps:
        world.step(what, host)
    for host in (0, 2):
        world.step("come", host)
    for _ in range(6):
        for host in world.hosts:
            world.warm_up(host)
            world.see(host)
        world.step("place", 0)
        for host in world.hosts:
            world.obey(host)
    shares = {host: len(each.held.placed.numbers) for host, each in world.hosts.items()}
    staying = [shares[host] for host in world.hosts.keys() - world.leaving]
    assert sum(staying) == COUNT
    assert max(staying) - min(staying) <= 1
    assert all(world.assigner.is_empty(host) for host in world.leaving)
    nodes = {host // 2 for host in world.hosts.keys() - world.leaving}
    copies = world.assigner.copies(world.hosts.keys() - world.leaving)
    for number in range(COUNT):
        owner = next(h for h, each in world.hosts.items() if number in each.held.placed.numbers)
        kept = [host // 2 for host, numbers in copies.items() if number in numbers]
        assert owner // 2 not in kept
        assert len(kept) == len(set(kept)) == min(standbys, len(nodes) - 1)


def test_a_living_owner_keeps_a_partition_until_another_node_has_a_copy():
    assigner = Assigner(2)
    assigner.see(0, Said(node="a"))
    placed = assigner.place([0])[0]
    assigner.see(0, Said(Held(placed, placed), node="a"))
    assigner.see(1, Said(node="b"))
    assert assigner.place([0, 1]) == {}
    moving = assigner.copies([0, 1])[1]
    assert len(moving) == 1
    assigner.see(1, Said(warm=moving, node="b"))
    assert assigner.place([0, 1]) == {0: Placed(2, placed.numbers - moving)}
    # and the copy is kept until it is open
    assert assigner.copies([0, 1])[1] == moving


def test_what_a_dead_host_had_goes_to_a_copy_before_it_goes_where_there_is_room():
    assigner = Assigner(4, standbys=1)
    held = [Placed(1, frozenset({number})) for number in range(2)]
    both = frozenset({2, 3})
    assigner.see(0, Said(Held(held[0], held[0]), both, "a"))
    assigner.see(1, Said(Held(held[1], held[1]), node="b"))
    assert assigner.place([0, 1]) == {0: Placed(2, frozenset({0, 2, 3}))}
    assigner.see(
        0, Said(Held(Placed(2, frozenset({0, 2, 3})), Placed(2, frozenset({0, 2, 3}))), node="a")
    )
    assert assigner.place([0, 1]) == {}
    moving = assigner.copies([0, 1])[1] & both
    assigner.see(1, Said(Held(held[1], held[1]), moving, "b"))
    assert len(assigner.place([0, 1])[0].numbers) == 2


def test_a_host_that_leaves_keeps_its_partitions_while_there_is_no_other():
    assigner = Assigner(2)
    assigner.see(0, Said(node="a"))
    placed = assigner.place([0])[0]
    assigner.see(0, Said(Held(placed, placed), node="a"))
    assert assigner.place([], leaving=[0]) == {}


def test_what_another_one_had_later_is_placed_once_more():
    assigner = Assigner(1)
    assigner.see(0, Said())
    assert assigner.place([0]) == {0: Placed(1, frozenset({0}))}
    told = Placed(1, frozenset({0}))
    assigner.see(0, Said(Held(Placed(1, frozenset()), told, is_ended=False, taken_in=9)))
    assert assigner.place([0]) == {0: Placed(10, frozenset({0}))}


def test_a_run_is_over_when_every_partition_was_read_to_its_end_where_it_is():
    assigner = Assigner(2)
    for host in (0, 1):
        assigner.see(host, Said())
    placed = assigner.place([0, 1])
    for host, is_ended in ((0, True), (1, False)):
        assigner.see(host, Said(Held(placed[host], placed[host], is_ended=is_ended)))
    assert not assigner.is_over(0)
    assigner.see(1, Said(Held(placed[1], placed[1], is_ended=True)))
    assert assigner.is_over(0)
    assigner.done(0)
    assert not assigner.place([1])
    assert assigner.is_over(1)
