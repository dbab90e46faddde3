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

    @Test func `OpenMetrics has counters without their suffix, the time of creation, exemplars and an end`() {
        var text = MetricsText(.openMetrics, countingSince: 1_795_000_000.5)
        text.begin("a_total", .counter, "Things \"so called\".")
        text.add("a_total", ["kind": "odd \"\\\n"], UInt64(3))
        text.single("c", .gauge, "Level.", UInt64(7))
        let histogram = Histogram(bounds: [10_000, 25_000], scale: 1e-9)
        let exemplar = Exemplar([("request_id", "x\"y")], value: 20_000, time: 1_795_000_001.25)
        histogram.add(20_000, inSecond: 1) { exemplar }
        histogram.add(30_000, inSecond: 1) { nil }
        text.histogram("b_seconds", "Times.", histogram.reading)
        text.end()
        #expect(
            text.text == """
                # HELP a Things \\"so called\\".
                # TYPE a counter
                a_total{kind="odd \\"\\\\\\n"} 3
                a_created{kind="odd \\"\\\\\\n"} 1795000000.5
                # HELP c Level.
                # TYPE c gauge
                c 7
                # HELP b_seconds Times.
                # TYPE b_seconds histogram
                b_seconds_bucket{le="1e-05"} 0
                b_seconds_bucket{le="2.5e-05"} 1 # {request_id="x\\"y"} 2e-05 1795000001.25
                b_seconds_bucket{le="+Inf"} 2
                b_seconds_sum 5e-05
                b_seconds_count 2
                b_seconds_created 1795000000.5
                # EOF

                """
        )
    }

    @Test func `a bucket keeps the first exemplar of a second, and the sum of two readings the later one`() {
        func exemplar(_ name: String, _ time: Double) -> Exemplar? {
            Exemplar([("request_id", name)], value: 5, time: time)
        }
        let (first, second) = (Histogram(bounds: [10]), Histogram(bounds: [10]))
        first.add(5, inSecond: 1) { exemplar("a", 1) }
        first.add(5, inSecond: 1) { exemplar("b", 1.5) }
        second.add(5, inSecond: 2) { exemplar("c", 2) }
        second.add(50, inSecond: 2) { exemplar("d", 2) }
        func names(_ reading: Histogram.Reading) -> [String?] { reading.exemplars.map { $0?.labels[0].value } }
        #expect(names(first.reading) == ["a", nil])
        #expect(names(first.reading + second.reading) == ["c", "d"])
        #expect(names(second.reading + first.reading) == ["c", "d"])
        first.add(5, inSecond: 3) { exemplar("e", 3) }
        #expect(names(first.reading + second.reading) == ["e", "d"])
    }

    @Test func `labels that are longer than the standard allows are no exemplar`() {
        #expect(Exemplar([], value: 1, time: 1) == nil)
        #expect(Exemplar([("id", String(repeating: "x", count: 126))], value: 1, time: 1) != nil)
        #expect(Exemplar([("id", String(repeating: "x", count: 127))], value: 1, time: 1) == nil)
    }

    @Test func `a family is written in the Prometheus text format`() {
        var text = MetricsText()
        text.begin("a_total", .counter, "Things.")
        text.add("a_total", ["kind": "odd \"\\\n"], UInt64(3))
        let histogram = Histogram(bounds: [10_000, 25_000], scale: 1e-9)
        histogram.add(20_000)
        histogram.add(30_000)
        text.histogram("b_seconds", "Times.", histogram.reading)
        #expect(
            text.text == """
                # HELP a_total Things.
                # TYPE a_total counter
                a_total{kind="odd \\"\\\\\\n"} 3
                # HELP b_seconds Times.
                # TYPE b_seconds histogram
                b_seconds_bucket{le="1e-05"} 0
                b_seconds_bucket{le="2.5e-05"} 1
                b_seconds_bucket{le="+Inf"} 2
                b_seconds_sum 5e-05
                b_seconds_count 2

                """
        )
    }
}
