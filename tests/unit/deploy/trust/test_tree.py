import hashlib

import pytest

from walle_deploy.trust.tree import NODE_MAX_BYTES, build_tree, find_in_tree
from walle_stream.errors import IntegrityError


class Nodes(dict):
    def store(self, data):
        assert len(data) <= NODE_MAX_BYTES
        digest = hashlib.sha256(data).hexdigest()
        self[digest] = data
        return digest


def entry(number):
    return hashlib.sha256(b"%d" % number).hexdigest(), number


@pytest.fixture(params=[1, 64, 65, 3_000])
def tree(request):
    nodes = Nodes()
    root = nodes.store(build_tree({f"f{i}": entry(i) for i in range(request.param)}, nodes.store))
    return nodes, root, request.param


def test_every_file_is_found_and_no_other(tree):
    nodes, root, count = tree
    for number in range(0, count, 1 + count // 50):
        assert find_in_tree(f"f{number}", root, nodes.__getitem__) == entry(number)
    assert find_in_tree(f"f{count}", root, nodes.__getitem__) is None


def test_a_file_costs_a_few_nodes_however_many_there_are():
    nodes, asked = Nodes(), []
    root = nodes.store(build_tree({f"f{i}": entry(i) for i in range(20_000)}, nodes.store))

    def read(sha256):
        asked.append(len(nodes[sha256]))
        return nodes[sha256]

    assert find_in_tree("f7", root, read) == entry(7)
    assert len(asked) == 3
    assert sum(asked) < 18_000


def test_the_same_files_give_the_same_tree(tree):
    _, root, count = tree
    again = Nodes()
    files = {f"f{i}": entry(i) for i in reversed(range(count))}
    assert again.store(build_tree(files, again.store)) == root


def test_no_name_stands_in_it(tree):
    nodes, _, _ = tree
    assert not any(b"f0" in data and b'"f0"' in data for data in nodes.values())


def test_an_altered_node_is_refused(tree):
    nodes, root, _ = tree
    for altered in (nodes[root][:-1], nodes[root] + b" ", b"", b"walle-tree 1 leaf\n{}"):
        with pytest.raises(IntegrityError, match="is not what was signed"):
            find_in_tree("f0", root, lambda _, data=altered: data)


@pytest.mark.parametrize(
    "data",
    [b"", b"walle-tree 2 leaf\n{}", b"walle-tree 1 inner\n" + bytes(9), b"walle-tree 1 leaf\n[]"],
)
def test_a_signed_node_of_another_form_is_refused(data):
    nodes = Nodes()
    with pytest.raises(IntegrityError, match="has an unknown form"):
        find_in_tree("f0", nodes.store(data), nodes.__getitem__)
