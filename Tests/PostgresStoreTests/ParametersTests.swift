#if PostgreSQL
import Testing

@testable import PostgresStore

@Suite struct ParametersTests {
    private func text(_ parameters: Parameters) -> [String] {
        parameters.places.map { place in
            guard let place else { return "NULL" }
            return parameters.bytes[place.start..<(place.start + place.length)].map { String($0, radix: 16) }
                .joined(separator: " ")
        }
    }

    @Test func `values are in network byte order, and arrays as array_recv reads them`() {
        var parameters = Parameters()
        parameters.append(Int64(258))
        parameters.append(Int64(-1))
        parameters.append(nil as Int64?)
        parameters.append([1, 2] as [UInt8])
        parameters.append([] as [UInt8])
        parameters.append(nil as [UInt8]?)
        parameters.append("ä")
        parameters.append(true)
        parameters.append([[7], nil] as [[UInt8]?])
        parameters.append([] as [Int64?])
        #expect(
            text(parameters) == [
                "0 0 0 0 0 0 1 2", "ff ff ff ff ff ff ff ff", "NULL", "1 2", "", "NULL", "c3 a4", "1",
                "0 0 0 1 0 0 0 1 0 0 0 11 0 0 0 2 0 0 0 1 0 0 0 1 7 ff ff ff ff", "0 0 0 0 0 0 0 0 0 0 0 14",
            ])
    }
}
#endif
