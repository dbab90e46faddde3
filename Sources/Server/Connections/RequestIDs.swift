internal import HTTP

/// Generates request ids for one loop.
///
/// Ids are distinct, but not secret: a counter with a random start, mixed by a bijection so that neighbours in a log do not look
/// alike (SplitMix64, in Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
struct RequestIDs {
    private var state = UInt64.random(in: .min ... .max)

    /// An id that no other request has.
    mutating func next() -> RequestID {
        state &+= 0x9E37_79B9_7F4A_7C15
        var number = state
        number = (number ^ (number >> 30)) &* 0xBF58_476D_1CE4_E5B9
        number = (number ^ (number >> 27)) &* 0x94D0_49BB_1331_11EB
        return .made(number ^ (number >> 31))
    }
}
