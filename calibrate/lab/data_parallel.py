"""Data parallelism as scripts of a rank, written as practitioners write them, with paced passes.

Each takes a Rank (ranks.py). Times of passes and sizes of tensors come from the scenario that the simulator predicts
(rank.options), everything else from here: nothing is replayed from the simulator's plan.
"""

import queue
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import collectives


def _pass(rank, layers, direction):
    """The passes of these layers, in the order of the direction."""
    for layer in layers if direction == "forward" else reversed(layers):
        rank.compute(layer[direction], f"{layer['name']} {direction}")


def _servers_and_places(rank, per_server):
    """The ranks of this rank's server and those of its place on all servers, with groups of gloo."""
    inside = across = None
    for first in range(0, rank.world, per_server):
        members = list(range(first, first + per_server))
        group = dist.new_group(members)
        if rank.number in members:
            inside = (members, group)
    for place in range(per_server):
        members = list(range(place, rank.world, per_server))
        group = dist.new_group(members)
        if rank.number in members:
            across = (members, group)
    return inside, across


def all_reduce(rank):
    """Data parallelism without overlap: gradients of all layers in one buffer, by a chosen algorithm."""
    options, layers = rank.options, rank.options["layers"]
    total = sum(layer["parameters"] for layer in layers)
    algorithm = options.get("algorithm", "ring")
    buffer = torch.ones(total)
    if algorithm == "hierarchical":
        inside, across = _servers_and_places(rank, options["per_server"])
    for _ in rank.steps(options["steps"]):
        buffer.fill_(1)
        _pass(rank, layers, "forward")
        _pass(rank, layers, "backward")
        begin = time.monotonic()
        if algorithm == "ring":
            dist.all_reduce(buffer)
        elif algorithm == "naive":
            collectives.naive_all_reduce(buffer, rank.number, rank.world)
        elif algorithm == "tree":
            collectives.tree_all_reduce(buffer, rank.number, rank.world)
        elif algorithm == "halving_doubling":
            collectives.halving_doubling_all_reduce(buffer, rank.number, rank.world)
        elif algorithm == "hierarchical":
            collectives.hierarchical_all_reduce(buffer, rank.number, inside[0], across[0], inside[1], across[1])
        rank.span("all-reduce", "data", begin)
        if buffer[0] != rank.world or buffer[-1] != rank.world:
            raise AssertionError(f"{algorithm} all-reduce gave {buffer[0]} and {buffer[-1]} for {rank.world}")


class _PacedLayer(torch.autograd.Function):
    """A layer whose passes take a given time; its weight's gradient is there when the backward pass ends."""

    @staticmethod
    def forward(ctx, value, weight, rank, layer):
        ctx.rank, ctx.layer, ctx.size = rank, layer, weight.numel()
        rank.compute(layer["forward"], f"{layer['name']} forward")
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.rank.compute(ctx.layer["backward"], f"{ctx.layer['name']} backward")
        return gradient, torch.ones(ctx.size), None, None


class _PacedNetwork(torch.nn.Module):
    def __init__(self, rank, layers):
        super().__init__()
        self.rank, self.layers = rank, layers
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(layer["parameters"]))
                                               for layer in layers])

    def forward(self, value):
        for weight, layer in zip(self.weights, self.layers):
            value = _PacedLayer.apply(value, weight, self.rank, layer)
        return value


def _step_of_ddp(rank, layers, group=None):
    """A function that does a step of PyTorch's own DistributedDataParallel; group: of its ranks, or all."""
    options = rank.options
    dist._DEFAULT_FIRST_BUCKET_BYTES = int(options["first_bucket_bytes"])
    network = _PacedNetwork(rank, layers)
    wrapped = DistributedDataParallel(network, bucket_cap_mb=options["bucket_bytes"] / (1 << 20),
                                      gradient_as_bucket_view=True, process_group=group)

    def reduced(state, bucket):
        """PyTorch's default, and a record of when each bucket left and came."""
        begin = time.monotonic()
        index = bucket.index()
        work = dist.all_reduce(bucket.buffer().div_(rank.world), group=group, async_op=True).get_future()

        def done(future):
            rank.spans.append((f"all-reduce bucket {index}", "data", begin, time.monotonic()))
            return future.value()[0]
        return work.then(done)
    wrapped.register_comm_hook(None, reduced)
    value = torch.zeros(1, requires_grad=True)

    def step():
        wrapped.zero_grad(set_to_none=False)
        wrapped(value).sum().backward()
    return step


def distributed_data_parallel(rank):
    """Buckets leave while the backward pass goes on."""
    step = _step_of_ddp(rank, rank.options["layers"])
    for _ in rank.steps(rank.options["steps"]):
        step()


def jobs(rank):
    """Several jobs of DistributedDataParallel, each on ranks of its own, which begin together and meet no more."""
    groups = [dist.new_group(job["ranks"]) for job in rank.options["jobs"]]
    own = next(i for i, job in enumerate(rank.options["jobs"]) if rank.number in job["ranks"])
    job = rank.options["jobs"][own]
    step = _step_of_ddp(rank, job["layers"], groups[own])
    series = []
    for number in rank.steps(rank.options["series"]):
        ends = []
        for _ in range(2 if number == 1 else job["steps"]):  # buckets are made anew in the second step
            step()
            ends.append(time.monotonic() - rank.starts[-1])
        series.append(ends)
    rank.extra.update(job=own, job_ends=series[1:])


def steps_of_jobs(records):
    """By job the mean seconds of its steps in each series, those between its first and the end of the first job's last
    but one."""
    count = 1 + max(record["job"] for record in records)
    found = [[] for _ in range(count)]
    for series in range(len(records[0]["job_ends"])):
        ends = [[max(at) for at in zip(*(r["job_ends"][series] for r in records if r["job"] == job))]
                for job in range(count)]
        for job, own in enumerate(ends):
            inside = [at for at in own if at <= ends[0][-2]]
            found[job].append((inside[-1] - inside[0]) / (len(inside) - 1))
    return found


def parameter_server(rank):
    """Synchronous: the first ranks hold even parts of the parameters, the others push gradients and pull parameters."""
    options, layers = rank.options, rank.options["layers"]
    shards = options["shards"]
    workers = list(range(shards, rank.world))
    total = sum(layer["parameters"] for layer in layers)
    sizes = [len(part) for part in torch.empty(total).chunk(shards)]
    if rank.number < shards:
        parts = [torch.empty(sizes[rank.number]) for _ in workers]
        for _ in rank.steps(options["steps"]):
            waiting = [dist.irecv(part, worker) for part, worker in zip(parts, workers)]
            for work in waiting:
                work.wait()
            begin = time.monotonic()
            summed = torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]
            rank.span("sum and update", "compute", begin)
            begin = time.monotonic()
            for work in [dist.isend(summed, worker) for worker in workers]:
                work.wait()
            rank.span("pulls", "data", begin)
        return
    gradients = list(torch.ones(total).split(sizes))
    parameters = [torch.empty_like(part) for part in gradients]
    for _ in rank.steps(options["steps"]):
        _pass(rank, layers, "forward")
        _pass(rank, layers, "backward")
        begin = time.monotonic()
        pulls = [dist.irecv(part, shard) for shard, part in enumerate(parameters)]
        for work in [dist.isend(part, shard) for shard, part in enumerate(gradients)]:
            work.wait()
        rank.span("push", "data", begin)
        begin = time.monotonic()
        for work in pulls:
            work.wait()
        rank.span("pull", "data", begin)
        if parameters[-1][-1] != len(workers):
            raise AssertionError("the server's sum is wrong")


class _UpdatingServer:
    """What the threads of an asynchronous server share: updates done, each worker's step and version."""

    def __init__(self, workers, staleness):
        """staleness: steps that a worker may be ahead of the slowest; None: any."""
        self.condition = threading.Condition()
        self.updates = 0
        self.seen = {worker: 0 for worker in workers}     # updates that the worker's parameters hold
        self.finished = {worker: 0 for worker in workers}  # steps whose gradients have come
        self.staleness = staleness
        self.updates_done = []  # (worker, moment, how many updates of others its gradient had not seen)

    def update(self, worker, is_last):
        """A gradient has come; its worker gets the parameters as they are then."""
        with self.condition:
            self.updates_done.append((worker, time.monotonic(), self.updates - self.seen[worker]))
            self.updates += 1
            self.finished[worker] = 1 << 30 if is_last else self.finished[worker] + 1
            self.condition.notify_all()
            self.seen[worker] = self.updates

    def wait_for_others(self, worker):
        """Returns when the worker may begin its next step i, from 0: when all have done step i - staleness - 1."""
        with self.condition:
            if self.staleness is not None:
                self.condition.wait_for(lambda: min(self.finished.values()) >= self.finished[worker] - self.staleness)


def asynchronous_server(rank):
    """Asynchronous or stale-synchronous: each gradient updates as it comes, and its rank gets the parameters of then.

    The first parameters go to one worker after the other, each when the one before it has said that it has them: a send
    of gloo returns when the socket has taken the data, which may be seconds before it is there. Where all would begin
    at once, equal workers would stay in step, pull at once and push at once for ever, and the server's cable would
    carry one direction at a time. Later pulls go as they are asked for, at once if need be. A worker that is too far
    ahead waits with the parameters that it has, as in the simulator; a server that read anew after the wait would give
    younger ones.
    """
    options, layers = rank.options, rank.options["layers"]
    total = sum(layer["parameters"] for layer in layers)
    workers = list(range(1, rank.world))
    rounds = options["rounds"]
    for _ in rank.steps(1):
        if rank.number == 0:
            server = _UpdatingServer(workers, options.get("staleness"))
            parameters, turns = torch.zeros(total), [threading.Event() for _ in range(rank.world)]
            turns[0].set()

            def serve(worker):
                buffer, word = torch.empty(total), torch.empty(1)
                for number in range(rounds):
                    push, taken = dist.irecv(buffer, worker, tag=1), dist.irecv(word, worker, tag=2)
                    if number == 0:
                        turns[worker - 1].wait()
                    dist.isend(parameters, worker).wait()
                    taken.wait()
                    turns[worker].set()
                    server.wait_for_others(worker)
                    dist.send(word, worker, tag=3)
                    push.wait()
                    server.update(worker, number == rounds - 1)
            threads = [threading.Thread(target=serve, args=(worker,)) for worker in workers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rank.extra = {"updates": server.updates_done}
        else:
            gradients, parameters, word = torch.ones(total), torch.empty(total), torch.ones(1)
            for _ in range(rounds):
                begin = time.monotonic()
                dist.recv(parameters, 0)
                rank.span("pull", "data", begin)
                dist.send(word, 0, tag=2)
                dist.recv(word, 0, tag=3)
                _pass(rank, layers, "forward")
                _pass(rank, layers, "backward")
                begin = time.monotonic()
                dist.send(gradients, 0, tag=1)
                rank.span("push", "data", begin)


def fully_sharded(rank):
    """Parameters of each layer are gathered for both passes, one layer ahead, and gradients reduced to shards."""
    options, layers = rank.options, rank.options["layers"]
    members = list(range(rank.world))
    # One thread serves gathers and reductions in the order in which the script asked, as one communicator does.
    tasks, worker_failed = queue.Queue(), []

    def serve():
        while (task := tasks.get()) is not None:
            work, done = task
            try:
                work()
            except BaseException as error:  # told by the script, which waits for done
                worker_failed.append(error)
            done.set()
    server = threading.Thread(target=serve, daemon=True)
    server.start()

    def enqueue(label, work):
        done = threading.Event()

        def timed():
            begin = time.monotonic()
            work()
            rank.span(label, "data", begin)
        tasks.put((timed, done))
        return done

    def waited(done):
        done.wait()
        if worker_failed:
            raise worker_failed[0]

    shards = [torch.ones(layer["parameters"] // rank.world) for layer in layers]

    def gather(place):
        layer = layers[place]
        whole = [torch.empty_like(shards[place]) for _ in members]
        return enqueue(f"all-gather {layer['name']}", lambda: dist.all_gather(whole, shards[place]))

    def reduce(place):
        layer = layers[place]
        parts = list(torch.ones(layer["parameters"]).chunk(rank.world))
        return enqueue(f"reduce-scatter {layer['name']}",
                       lambda: collectives.ring_reduce_scatter(parts, members, rank.number))

    # As DeepSpeed's third stage: a pass gathers its first layer when it begins, and each other one while the layer
    # before it computes.
    count = len(layers)
    order = [(place, "forward") for place in range(count)] + [(place, "backward") for place in reversed(range(count))]
    for _ in rank.steps(options["steps"]):
        gathered = {0: gather(0)}
        reduced = []
        for at, (place, direction) in enumerate(order):
            if at not in gathered:
                gathered[at] = gather(place)  # the first of the backward pass, which nothing hides
            if at + 1 < len(order) and at + 1 != count:
                gathered[at + 1] = gather(order[at + 1][0])
            waited(gathered[at])
            rank.compute(layers[place][direction], f"{layers[place]['name']} {direction}")
            if direction == "backward":
                reduced.append(reduce(place))
        for done in reduced:
            waited(done)
    tasks.put(None)
    server.join()


def updates_of(records):
    """(updates a second, mean staleness) between the first worker's fourth update and its last, as trainyard counts."""
    updates = next(record["updates"] for record in records if "updates" in record)
    own = [at for at, (worker, _, _) in enumerate(updates) if worker == 1]
    counted = updates[own[3]:own[-1]]
    seconds = updates[own[-1]][1] - updates[own[3]][1]
    return len(counted) / seconds, sum(age for _, _, age in counted) / len(counted)
