import Cryptography

func hexadecimal(_ text: String) -> [UInt8] {
    var bytes: [UInt8] = []
    var rest = Substring(text)
    while !rest.isEmpty {
        bytes.append(UInt8(rest.prefix(2), radix: 16) ?? 0)
        rest = rest.dropFirst(2)
    }
    return bytes
}

/// The sum of two big-endian numbers, with a byte more than the first one if it needs that.
func plus(_ first: [UInt8], _ second: [UInt8]) -> [UInt8] {
    var sum = first
    var carry = 0
    for index in first.indices.reversed() {
        let place = index - first.count + second.count
        carry += Int(first[index]) + (place >= 0 ? Int(second[place]) : 0)
        sum[index] = UInt8(carry & 0xff)
        carry >>= 8
    }
    return carry > 0 ? [UInt8(carry)] + sum : sum
}

/// The difference of two big-endian numbers of the same length, of which the first is not smaller.
func less(_ first: [UInt8], _ second: [UInt8]) -> [UInt8] {
    var difference = first
    var borrow = 0
    for index in first.indices.reversed() {
        let value = Int(first[index]) - Int(second[index]) - borrow
        difference[index] = UInt8(value & 0xff)
        borrow = value < 0 ? 1 : 0
    }
    return difference
}

func sha256(_ bytes: [UInt8]) -> [UInt8] {
    var digest: [UInt8] = []
    guard let context = try? SHA256Digest(), (try? context.digest(bytes.span, into: &digest)) != nil else {
        preconditionFailure("SHA-256 is available")
    }
    return digest
}
