"""Values that tell which write they are of, and whether they are whole."""
import math
import random


def value_of(unique_id, number, longest):
    """The value for this number: of random length and different in every part, so that a torn value is recognized.

    It starts with its number; some values are the number alone.
    """
    generator = random.Random(f"{unique_id} {number}")
    if generator.random() < 0.25:
        return str(number)
    length = int(math.exp(generator.uniform(math.log(10), math.log(longest))))
    return f"{number}.{generator.randbytes(length).hex()}"[:max(length, len(str(number)) + 1)]


def number_of(unique_id, value, longest):
    """The number of a value; fails if the value is torn."""
    start = value.partition(".")[0]
    assert start.isdecimal(), f"{unique_id} has a foreign value: {value[:50]!r}"
    assert value == value_of(unique_id, int(start), longest), f"{unique_id} has a torn value: {value[:50]!r}"
    return int(start)
