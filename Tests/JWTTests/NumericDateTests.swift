import Testing

@testable import JWT

struct NumericDateTests {
    @Test(
        arguments: [
            ("0", 0, 0), ("-0", 0, 0), ("1", 1, 1), ("1.0", 1, 1), ("1.5", 1, 2), ("1.000000001", 1, 2), ("-1", -1, -1),
            ("-1.5", -2, -1), ("-0.5", -1, 0), ("999999999999", 999_999_999_999, 999_999_999_999),
            ("1.5e3", 1500, 1500),
        ] as [(String, Int64, Int64)])
    func `a time is rounded to both sides`(_ text: String, _ floor: Int64, _ ceiling: Int64) {
        let date = NumericDate(Array(text.utf8))
        #expect(date?.floor == floor && date?.ceiling == ceiling)
    }

    @Test(arguments: ["1e12", "-1e400", "1000000000000", "-", ""])
    func `a number that no issuer writes for a time is none`(_ text: String) {
        #expect(NumericDate(Array(text.utf8)) == nil)
    }
}
