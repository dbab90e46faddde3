import Foundation
import System
import Testing

@testable import EventLoop

/// What handshakes hold while they are under way.
@Suite struct TLSHandshakeTests {
    private let context: WatchedCertificates

    init() throws {
        context = try .withOneCertificate()
    }

    /// A ClientHello that claims 128,000 bytes, up to the 200th byte of its content.
    private static let claimingHello: [UInt8] =
        [22, 3, 1, 0, 204, 1, 0x01, 0xf4, 0x00, 3, 3] + [UInt8](repeating: 7, count: 198)

    /// Handshakes that share a budget, and how they ended, in the order of their ends.
    private final class Began: @unchecked Sendable {
        // Unchecked: on the loop alone.
        let all: TLSHandshakes
        var ends: [(number: Int, error: TLSError)] = []

        init(_ budget: BufferBudget) {
            all = TLSHandshakes(budget)
        }
    }

    /// Begins a handshake with a client that sends these bytes and then nothing, and waits until it is counted or has ended.
    private func begin(
        _ number: Int, _ bytes: [UInt8], _ context: WatchedCertificates, _ began: Began, on loop: EventLoop
    ) async throws -> Int32 {
        let (server, client) = try socketPair()
        #expect(write(client, bytes, bytes.count) == bytes.count)
        awaitArrival(at: server)
        let first = Notes()
        loop.execute {
            Task(executorPreference: loop) {
                var stream = try TCPStream(FileDescriptor(owning: server), on: loop)
                first.add(number)
                do throws(TLSError) {
                    try await stream.startTLS(context, clients: .none, until: .never, among: began.all)
                } catch {
                    began.ends.append((number, error))
                }
            }
        }
        // What has arrived is read in the next turns.
        while first.all.isEmpty { try await loop.perform { await Task.yield() } }
        for _ in 0..<20 { try await loop.perform { await loop.sleep(until: loop.now) } }
        return client
    }

    @Test(
        arguments: [
            // One byte each: four of 64 KiB fit into half of 512 KiB.
            (512 << 10, [22], 7, [0, 1, 2], 4 * 64 << 10),
            // A hello that has begun counts with what OpenSSL makes room for.
            (1 << 20, claimingHello, 4, [0, 1], 2 * 192 << 10),
            // The share of one loop does not even have room for one, but the whole has.
            (100 << 10, [22], 3, [0, 1], 64 << 10),
            // There is room for none, with any number of others.
            (63 << 10, [22], 2, [0, 1], 0),
        ] as [(Int, [UInt8], Int, [Int], Int)]
    )
    func `beyond their share of the buffers the oldest handshakes end`(
        limit: Int, bytes: [UInt8], count: Int, ended: [Int], counted: Int
    ) async throws {
        try await withLoop { loop in
            let budget = BufferBudget(limit: limit)
            let began = Began(budget)
            var clients: [Int32] = []
            defer { for client in clients { close(client) } }
            for number in 0..<count { clients.append(try await begin(number, bytes, context, began, on: loop)) }
            #expect(budget.takenBytes == counted)
            let ends = try await loop.perform { began.ends }
            #expect(ends.map(\.number) == ended)
            #expect(ends.allSatisfy { $0.error == .displaced })
            loop.abandon()
            while try await loop.perform({ began.ends.count }) < count {}
            #expect(budget.takenBytes == 0)
        }
    }

    @Test(arguments: [[22], claimingHello])
    func `a client that goes on with half a hello makes room for others also before that is read`(bytes: [UInt8])
        async throws
    {
        try await withLoop { loop in
            let began = Began(BufferBudget(limit: 1 << 20))
            let client = try await begin(0, bytes, context, began, on: loop)
            defer { close(client) }
            let displaced = try await loop.perform {
                #expect(write(client, [3], 1) == 1)
                while loop.handshakeQueue.isEmpty { await Task.yield() }
                return loop.displace(.expendable)
            }
            #expect(displaced == 1)
        }
    }

    @Test
    func `a handshake that is over counts no more`() async throws {
        try await withLoop { loop in
            let budget = BufferBudget(limit: 1 << 20)
            let (server, descriptor) = try socketPair()
            async let served = serveEcho(server, context, clients: .none, on: loop, budget: budget)
            let client = try TLSClient(descriptor)
            try await blocking {
                try client.connect()
                try client.send("word")
                #expect(try client.receiveText() == "word")
            }
            #expect(budget.takenBytes == 0)
            shutdown(descriptor, Int32(SHUT_RDWR))
            _ = try await served
        }
    }

    @Test(arguments: [(13_000, true), (17_000, false), (60_000, false)])
    func `a ClientHello has at most 16 KiB`(bytes: Int, isAccepted: Bool) async throws {
        let protocols =
            ["http/1.1"]
            + (0..<(bytes / 100)).map { number in
                String(repeating: "x", count: 95) + String(1_000 + number)
            }
        try await withLoop { loop in
            let meeting = try await meet(context, .init(protocols: protocols), on: loop)
            if isAccepted {
                #expect(try meeting.client.get().chosenProtocol == "http/1.1")
            } else {
                #expect(meeting.serverError == .refused(reason: "ClientHello larger than 16 KiB"))
            }
        }
    }
}
