import Foundation
import System
import Testing

@testable import EventLoop

@Suite struct EventLoopTests {
    @Test
    func `a task of a loop runs on the loop's thread, also after it has waited`() async throws {
        try await withLoop { loop in
            let isOnLoop = try await loop.perform {
                var all = loop.isCurrent
                await Task.yield()
                all = all && loop.isCurrent
                await loop.sleep(until: .now + Nanoseconds(.milliseconds(2)))
                all = all && loop.isCurrent
                await withCheckedContinuation { continuation in
                    DispatchQueue.global().async { continuation.resume() }
                }
                return all && loop.isCurrent
            }
            #expect(isOnLoop)
            #expect(!loop.isCurrent)
        }
    }

    @Test
    func `work from many threads is all done`() async throws {
        try await withLoop { loop in
            let notes = Notes()
            await withTaskGroup { group in
                for _ in 0..<2_000 {
                    group.addTask(executorPreference: loop) { notes.add(1) }
                }
            }
            #expect(notes.all.count == 2_000)
        }
    }

    @Test
    func `sleepers wake in the order of their deadlines and never early`() async throws {
        try await withLoop { loop in
            let order = Notes()
            // Immediate tasks on the loop itself: all of them sleep before the loop looks at its timers again.
            await withTaskExecutorPreference(loop) {
                let start = MonotonicTime.now
                await withTaskGroup { group in
                    for milliseconds in [30, 1, 20, 10, 0] {
                        group.addImmediateTask {
                            let deadline = start + Nanoseconds(.milliseconds(milliseconds))
                            await loop.sleep(until: deadline)
                            #expect(MonotonicTime.now >= deadline)
                            order.add(milliseconds)
                        }
                    }
                }
            }
            #expect(order.all == [0, 1, 10, 20, 30])
        }
    }

    @Test
    func `the end of a turn comes after what ran in it`() async throws {
        let loop = try EventLoop()
        let done = Notes()
        let doneAtEnd = Notes()
        loop.endOfTurn = { doneAtEnd.add(done.all.count) }
        Thread { loop.run() }.start()
        try await loop.perform {
            // Made ready in one turn; together they run in the next, unless its time is over meanwhile.
            await withTaskGroup { group in
                for number in 0..<3 { group.addTask { done.add(number) } }
            }
        }
        try await loop.perform {}
        loop.stop()
        #expect(doneAtEnd.all == doneAtEnd.all.sorted())
        #expect(doneAtEnd.all.last == 3)
    }
}

@Suite struct ListenerTests {
    /// Whether a client can connect to a listener.
    private static func connects(to listener: Listener) -> Bool {
        let client = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(client) }
        return unsafe listener.address.withPointer { unsafe connect(client, $0, $1) } == 0
    }

    @Test
    func `a listener that cannot be watched for a while accepts meanwhile what has connected`() async throws {
        try await withLoop { loop in
            let listener = try Listener(binding: try SocketAddress.resolve(host: "127.0.0.1", port: 0)[0])
            try await loop.perform {
                // The kernel refuses to watch a descriptor twice.
                let other = try loop.registerShared(listener.descriptor.number)
                var acceptor = Acceptor(listener, on: loop)
                var accepted = 0
                #expect(Self.connects(to: listener))
                while case .accepted(let descriptor, _) = await acceptor.next() {
                    _ = FileDescriptor(owning: descriptor)
                    accepted += 1
                }
                #expect(accepted == 1)
                if case .failed(let error) = await acceptor.next() {
                    #expect(error == SystemError(call: "epoll_ctl", code: EEXIST))
                } else {
                    Issue.record("a descriptor was watched twice")
                }
                loop.deregister(other, isShared: true)
                // Runs once the acceptor waits.
                let client = Task(executorPreference: loop) { Self.connects(to: listener) }
                if case .accepted(let descriptor, _) = await acceptor.next() {
                    _ = FileDescriptor(owning: descriptor)
                    accepted += 1
                }
                let hasConnected = await client.value
                #expect(hasConnected && accepted == 2)
            }
        }
    }

    @Test
    func `connections are accepted until draining, and refused after the last acceptor has gone`() async throws {
        try await withLoop { loop in
            let listener = try Listener(binding: try SocketAddress.resolve(host: "127.0.0.1", port: 0)[0])
            let accepted = Notes()
            async let accepting: Void = loop.perform {
                var acceptor = Acceptor(listener, on: loop)
                while case .accepted(let descriptor, let peer) = await acceptor.next() {
                    _ = FileDescriptor(owning: descriptor)
                    #expect(peer.description.hasPrefix("127.0.0.1:"))
                    accepted.add(1)
                }
            }
            for _ in 0..<5 { #expect(Self.connects(to: listener)) }
            while accepted.all.count < 5 { try await loop.perform { await Task.yield() } }
            loop.endIdleWaits()
            try await accepting
            #expect(!Self.connects(to: listener))
        }
    }

    @Test(
        arguments: [
            ("127.0.0.1", "127.0.0.1:80", true), ("::1", "[::1]:80", true), ("192.0.2.1", "192.0.2.1:80", false),
        ]
    )
    func `addresses are written as they are read`(host: String, text: String, isLoopback: Bool) throws {
        let address = try SocketAddress.resolve(host: host, port: 80)[0]
        #expect(address.description == text)
        #expect(address.endpoint?.address.isLoopback == isLoopback)
    }
}
