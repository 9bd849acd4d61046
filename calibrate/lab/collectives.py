"""Collectives over point-to-point messages of torch.distributed, for what gloo has no algorithm of its own for.

Each follows the messages that the simulator's algorithm of that name is made of (sim/collective), streamed in pieces
where that one streams. gloo's own: ring all-reduce, ring all-gather, pairwise all-to-all.
"""

import queue
import threading

import torch
import torch.distributed as dist

PIECE = 1 << 14  # numbers: 64 KiB in fp32


def _parallel(*works):
    """Runs functions at once, each in a thread; raises what one of them raised."""
    failures = []

    def guarded(work):
        try:
            work()
        except BaseException as error:  # raised again below, in the caller's thread
            failures.append(error)
    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def exchanged(into, out, target, source=None, tag=0):
    """Receives and sends at once.

    The receive comes first: gloo tells the sender that it may begin by a word on the same connection, which would else
    wait behind the data that goes the other way, and the two would follow each other.
    """
    return [dist.irecv(into, target if source is None else source, tag=tag), dist.isend(out, target, tag=tag)]


def naive_all_reduce(tensor, rank, world):
    """Everything to rank 0, which adds in the order of ranks and sends the sum to each."""
    if rank == 0:
        parts = [torch.empty_like(tensor) for _ in range(world - 1)]
        for work in [dist.irecv(part, src=peer) for peer, part in enumerate(parts, start=1)]:
            work.wait()
        for part in parts:
            tensor += part
        for work in [dist.isend(tensor, dst=peer) for peer in range(1, world)]:
            work.wait()
    else:
        dist.send(tensor, 0)
        dist.recv(tensor, 0)


def halving_doubling_all_reduce(tensor, rank, world):
    """Recursive halving, then doubling: log2 of the ranks rounds each way; world is a power of two."""
    low, high = 0, tensor.numel()
    ranges = []
    distance = world // 2
    while distance:
        peer = rank ^ distance
        middle = (low + high) // 2
        keep, give = ((low, middle), (middle, high)) if rank < peer else ((middle, high), (low, middle))
        part = torch.empty(keep[1] - keep[0])
        for work in exchanged(part, tensor[give[0]:give[1]], peer):
            work.wait()
        tensor[keep[0]:keep[1]] += part
        ranges.append((peer, keep, give))
        low, high = keep
        distance //= 2
    for peer, keep, give in reversed(ranges):
        for work in exchanged(tensor[give[0]:give[1]], tensor[keep[0]:keep[1]], peer):
            work.wait()


def in_order_tree(world):
    """Parents of the ranks in the in-order binary tree, in which the lowest bit of a number tells its level."""
    def parent_of(i):
        bit = i & -i
        return (i - bit) | (2 * bit)
    root = 1
    while 2 * root <= world:
        root *= 2
    parents = []
    for i in range(1, world + 1):
        parent = i if i == root else parent_of(i)
        while parent > world:
            parent = parent_of(parent)
        parents.append(parent - 1)
    return parents


def two_trees(world):
    """Parents in the tree and in its mirror image (an odd number of ranks: its shift by one); a root is its own."""
    first = in_order_tree(world)

    def other(rank):
        return world - 1 - rank if world % 2 == 0 else (rank + 1) % world
    second = [0] * world
    for rank, parent in enumerate(first):
        second[other(rank)] = other(parent)
    return first, second


class _TreeHalf:
    """One of the two trees as a rank sees it: its half of the buffer in pieces, up to the root and down again."""

    def __init__(self, half, rank, parents, tag):
        self.pieces = list(half.split(PIECE))
        self.parent = parents[rank]
        self.is_root = parents[rank] == rank
        self.children = [r for r, parent in enumerate(parents) if parent == rank and r != rank]
        self.up, self.down = tag, tag + 1
        self.parts = [[(part := torch.empty_like(piece), dist.irecv(part, child, tag=self.up))
                       for child in self.children] for piece in self.pieces]
        self.sums = self.pieces if self.is_root else [torch.empty_like(piece) for piece in self.pieces]
        self.arriving = [] if self.is_root else [dist.irecv(result, self.parent, tag=self.down) for result in self.sums]

    def _to_children(self, piece):
        return [dist.isend(piece, child, tag=self.down) for child in self.children]

    def rise(self):
        sent = []
        for piece, parts in zip(self.pieces, self.parts):
            for part, work in parts:
                work.wait()
                piece += part
            sent += self._to_children(piece) if self.is_root else [dist.isend(piece, self.parent, tag=self.up)]
        for work in sent:
            work.wait()

    def fall(self):
        sent = []
        for result, work in zip(self.sums, self.arriving):
            work.wait()
            sent += self._to_children(result)
        for work in sent:
            work.wait()

    def keep(self):
        for piece, result in zip(self.pieces, self.sums):
            piece.copy_(result)


def tree_all_reduce(tensor, rank, world):
    """Two binary trees, each of which reduces and broadcasts one half, in pieces."""
    middle = tensor.numel() // 2
    trees = [_TreeHalf(half, rank, parents, 2 * number)
             for number, (half, parents) in enumerate(zip((tensor[:middle], tensor[middle:]), two_trees(world)))]
    _parallel(*[work for tree in trees for work in (tree.rise, tree.fall)])
    for tree in trees:
        tree.keep()


def ring_reduce_scatter(parts, members, rank, tag=0):
    """parts: one for each member, all as large, which are overwritten; the member's own ends as the sum."""
    size, place = len(members), members.index(rank)
    right, left = members[(place + 1) % size], members[(place - 1) % size]
    for step in range(size - 1):
        give, take = (place - step - 1) % size, (place - step - 2) % size
        part = torch.empty_like(parts[take])
        for work in exchanged(part, parts[give], right, left, tag):
            work.wait()
        parts[take] += part
    return parts[place]


def hierarchical_all_reduce(tensor, rank, inside, across, inside_group, across_group, pieces=16):
    """Rings inside the servers, across, and inside again; pieces are in all three at once.

    inside, across: the ranks of this rank's server, and those of its place on all servers; the groups are theirs.
    """
    waiting, returning = queue.Queue(), queue.Queue()
    chunks = tensor.chunk(pieces)

    def scatter():
        for chunk in chunks:
            parts = list(chunk.chunk(len(inside)))
            waiting.put((parts, ring_reduce_scatter(parts, inside, rank, tag=7)))
        waiting.put(None)

    def reduce():
        while (item := waiting.get()) is not None:
            if len(across) > 1:
                dist.all_reduce(item[1], group=across_group)
            returning.put(item)
        returning.put(None)

    def gather():
        while (item := returning.get()) is not None:
            parts, own = item
            if len(inside) > 1:
                dist.all_gather(parts, own.clone(), group=inside_group)
    _parallel(scatter, reduce, gather)
