import Metrics
import Testing

struct MetricsTests {
    @Test func `a counter adds and can be set`() {
        let counter = Counter()
        counter.add()
        counter.add(41)
        #expect(counter.value == 42)
        counter.set(7)
        #expect(counter.value == 7)
    }

    @Test(arguments: [(0, 0), (9, 0), (10, 0), (11, 1), (100, 1), (101, 2), (UInt64.max / 2, 2)] as [(UInt64, Int)])
    func `a value counts in the bucket of the first bound that it does not exceed`(value: UInt64, bucket: Int) {
        let histogram = Histogram(bounds: [10, 100])
        histogram.add(value, count: 2)
        var expected: [UInt64] = [0, 0, 0]
        expected[bucket] = 2
        #expect(histogram.reading.counts == expected)
        #expect(histogram.reading.sum == value &* 2)
    }

    @Test func `histograms of several threads add up`() {
        let (first, second) = (Histogram(bounds: [10]), Histogram(bounds: [10]))
        first.add(1)
        second.add(2)
        second.add(20)
        let sum = first.reading + second.reading
        #expect(sum.counts == [2, 1] && sum.sum == 23)
    }

    @Test func `the sum of two readings wraps around at its maximum, as a histogram's own sum does`() {
        let (first, second) = (Histogram(bounds: [10]), Histogram(bounds: [10]))
        first.add(.max)
        second.add(2)
        #expect((first.reading + second.reading).sum == 1)
    }

    @Test(
        arguments: [
            ([], 0.5, nil), ([4], 0.5, 5), ([4, 4], 0.5, 5), ([14], 0.5, 55), ([14, 15], 0.99, 99.1),
            ([500], 0.99, 100),
            ([4, 4, 4, 14], 0.5, 20.0 / 3), ([4, 4, 4, 14], 1, 100),
        ] as [([UInt64], Double, Double?)])
    func `a quantile counts values as evenly spread within their bucket`(
        values: [UInt64], share: Double, expected: Double?
    )
        throws
    {
        let histogram = Histogram(bounds: [10, 100])
        histogram.add(7, count: 100)
        let before = histogram.reading
        for value in values { histogram.add(value) }
        let quantile = histogram.reading.quantile(share, since: before)
        #expect((quantile == nil) == (expected == nil))
        if let quantile, let expected { #expect(abs(quantile - expected) < 1e-9) }
    }

    @Test func `the bounds of a latency ascend from 10 microseconds to 10 seconds`() {
        let bounds = Histogram.latency().bounds
        #expect(bounds.first == 10_000 && bounds.last == 10_000_000_000)
        #expect(bounds == bounds.sorted() && Set(bounds).count == bounds.count)
    }

    @Test func `a family is written in the Prometheus text format`() {
        var text = MetricsText()
        text.begin("a_total", "Things.")
        text.add(["kind": "odd \"\\\n"], UInt64(3))
        text.add([:], -1)
        let histogram = Histogram(bounds: [10_000, 25_000], scale: 1e-9)
        histogram.add(20_000)
        histogram.add(30_000)
        text.histogram("b_seconds", "Times.", histogram.reading)
        text.single("c_total", "Nothing.", Int?.none)
        text.single("d", "A state.", true)
        text.single("e_seconds", "A time.", 0.5)
        text.family("f", "Sizes.", by: "of", [("one", 1), ("other", 2)])
        #expect(
            text.text == """
                # HELP a_total Things.
                # TYPE a_total counter
                a_total{kind="odd \\"\\\\\\n"} 3
                a_total 0
                # HELP b_seconds Times.
                # TYPE b_seconds histogram
                b_seconds_bucket{le="1e-05"} 0
                b_seconds_bucket{le="2.5e-05"} 1
                b_seconds_bucket{le="+Inf"} 2
                b_seconds_sum 5e-05
                b_seconds_count 2
                # HELP d A state.
                # TYPE d gauge
                d 1
                # HELP e_seconds A time.
                # TYPE e_seconds gauge
                e_seconds 0.5
                # HELP f Sizes.
                # TYPE f gauge
                f{of="one"} 1
                f{of="other"} 2

                """
        )
    }
}
