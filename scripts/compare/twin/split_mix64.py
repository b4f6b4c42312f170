"""lockstep's random numbers in Python: support/split_mix64.h and data/batch_order.h. Needs only Python."""
GAMMA = 0x9E3779B97F4A7C15
MASK = 2**64 - 1


def mix64(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def draws(seed, *keys):
    """Yields 64-bit numbers without end, which depend only on the seed and the keys."""
    state = mix64(seed + GAMMA & MASK)
    for key in keys:
        state = mix64(state + key & MASK)
    while True:
        state = state + GAMMA & MASK
        yield mix64(state)


def below(random, n):
    return (next(random) >> 32) * n >> 32


def batch_order(seed, epoch, rows):
    """Returns the order in which an epoch visits its rows."""
    random = draws(seed, epoch)
    order = list(range(rows))
    for i in range(rows - 1, 0, -1):
        j = below(random, i + 1)
        order[i], order[j] = order[j], order[i]
    return order
