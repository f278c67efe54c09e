"""Rates and token buckets, compared with the arithmetic of Apache Kafka's Rate, SampledStat and TokenBucket."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.quotas.arithmetic import RateSensor, SampledRate, TokenBucket, Window

T0 = 5_000_000


class RingOfSamples:
    """The rule of SampledStat word by word: a ring of samples that are reset where they lie."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.samples: list[list[int]] = []
        self.current = 0

    def record(self, value: int, now_ms: int) -> None:
        if not self.samples:
            self.samples.append([now_ms, now_ms, 0])
        if now_ms - self.samples[self.current][0] >= self.window.sample_ms:
            self.current = (self.current + 1) % (self.window.samples + 1)
            if self.current >= len(self.samples):
                self.samples.append([now_ms, now_ms, 0])
            else:
                self.samples[self.current] = [now_ms, now_ms, 0]
        self.samples[self.current][1] = now_ms
        self.samples[self.current][2] += value

    def measure(self, now_ms: int) -> tuple[int, int]:
        for index, (_, last, _) in enumerate(self.samples):
            if now_ms - last >= self.window.samples * self.window.sample_ms:
                self.samples[index] = [now_ms, now_ms, 0]
        elapsed = now_ms - min(sample[0] for sample in self.samples)
        full = elapsed // self.window.sample_ms
        if full < self.window.samples - 1:
            elapsed += (self.window.samples - 1 - full) * self.window.sample_ms
        return sum(sample[2] for sample in self.samples), max(elapsed, 1)


@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 13_000), st.integers(0, 10_000)), min_size=1, max_size=60),
)
def test_any_sequence_of_events_gives_the_rate_of_sampled_stat(
    samples: int, events: list[tuple[int, int]]
) -> None:
    window = Window(samples, 1000)
    kept, ring, now_ms = SampledRate(window), RingOfSamples(window), T0
    for wait_ms, value in events:
        now_ms += wait_ms
        kept.record(value, now_ms)
        ring.record(value, now_ms)
        assert kept.measure(now_ms) == ring.measure(now_ms)


def test_burst_below_ten_seconds_of_the_quota_is_not_throttled() -> None:
    sensor = RateSensor(1000, Window(), T0)
    assert sensor.record(10_000, T0) == 0
    assert sensor.record(1, T0) == 1


def test_throttle_time_brings_the_rate_back_to_the_quota() -> None:
    """(O - T) / T x W: 20,000 bytes in a window of 10 s are 2000 a second, which 10 s more halve."""
    sensor = RateSensor(1000, Window(), T0)
    assert sensor.record(20_000, T0) == 10_000


def test_window_grows_with_the_age_of_the_oldest_sample() -> None:
    sensor = RateSensor(1000, Window(), T0)
    for second in range(11):
        assert sensor.record(1000, T0 + second * 1000) == (1000 if second == 10 else 0)
    # 12,000 in the 11.0 s since the first one, which is dropped as soon as its age is 11 s.
    assert sensor.record(1000, T0 + 11_000) == 1000


def test_sample_counts_until_its_last_event_is_old() -> None:
    rate = SampledRate(Window(2, 1000))
    rate.record(1, T0)
    rate.record(1, T0 + 999)
    assert rate.measure(T0 + 2998) == (2, 2998)
    assert rate.measure(T0 + 2999) == (0, 1000)


def test_what_is_taken_back_leaves_no_trace() -> None:
    sensor = RateSensor(1000, Window(), T0)
    assert sensor.record(50_000, T0) > 0
    sensor.take_back(50_000, T0)
    assert sensor.record(10_000, T0 + 5) == 0


def test_bound_of_zero_throttles_for_a_window() -> None:
    for bound in (0, -5):
        assert RateSensor(bound, Window(), T0).record(1, T0) == 10_000


def test_throttle_time_fits_a_response() -> None:
    assert RateSensor(1e-9, Window(), T0).record(2**40, T0) == 2**31 - 1


def test_bucket_is_full_at_first_and_may_be_overdrawn_once() -> None:
    bucket = TokenBucket(2, Window(), T0)
    assert bucket.try_record(22, T0) == 0
    assert bucket.try_record(10, T0) == 0
    assert bucket.try_record(1, T0) == 5000
    assert bucket.try_record(1, T0 + 4999) == 1
    assert bucket.try_record(1, T0 + 5000) == 0


def test_bucket_that_only_throttles_takes_any_number() -> None:
    bucket = TokenBucket(2, Window(), T0)
    assert bucket.record(22, T0) == 0
    assert bucket.record(3, T0) == 1500
    assert bucket.record(3, T0) == 3000
    assert bucket.record(0, T0 + 3000) == 0


def test_bucket_holds_no_more_than_a_window() -> None:
    bucket = TokenBucket(2, Window(), T0)
    assert bucket.try_record(23, T0 + 3_600_000) == 0
    assert bucket.try_record(1, T0 + 3_600_000) == 500
