import EventLoop
import Glibc

@testable import Server

/// Decides what happens next while the server is in a system call, and when time passes.
final class Scheduler: Surroundings {
    private unowned let world: World
    private let random: Randomness
    private var turns = 0
    private var interleaving = false
    private var phase = Phase.serving
    private var operatorActs: Int

    private enum Phase {
        /// Clients do what they have come for.
        case serving
        /// Those that paused go on.
        case resuming
        /// Some of the clients leave.
        case leaving
        /// The server was told to stop.
        case draining
        case ended
    }

    /// A seed that takes more turns runs in circles.
    private static let mostTurns = 50_000

    init(_ world: World) {
        self.world = world
        random = world.random
        operatorActs = world.choices.operatorActs
    }

    private var kernel: Kernel { world.kernel }

    // MARK: - Surroundings

    func pass(until deadline: UInt64?) {
        turns += 1
        defer { kernel.turn = turns }
        if turns > Self.mostTurns { violation("the server does not come to rest") }
        world.ledger.wallClockShows(kernel.clock.unixTime)
        // Another event may come before the loop waits.
        if random.happens(oneIn: 2) { act() }
        if deadline == kernel.clock.now { return }
        passLittleTime(until: deadline)
        while true {
            if kernel.hasEvents && random.happens(oneIn: world.choices.burst) { return }
            if act() { continue }
            if kernel.hasEvents { return }
            if rest(until: deadline) { return }
        }
    }

    func interleave() {
        guard !interleaving, random.happens(oneIn: 10) else { return }
        act()
    }

    func shortage(of client: SimulatedClient?) -> Int32 {
        guard world.choices.kernelFails, random.happens(oneIn: 12) else { return 0 }
        client?.checker.isForsaken = true
        world.note("kernel fails", client?.number ?? -1)
        return client == nil ? random.among([ECONNABORTED, EMFILE, ENOBUFS]) : ENOMEM
    }

    func clientIsAccepted(_ client: SimulatedClient) { world.accept(client) }

    func clockIsRead() { world.ledger.wallClockShows(kernel.clock.unixTime) }

    // MARK: - Acting

    /// Lets a client, the store or the operator do one thing; false if none has anything to do.
    @discardableResult private func act() -> Bool {
        interleaving = true
        defer { interleaving = false }
        let count = world.clients.count
        let first = random.below(count + 2)
        return (first..<first + count + 2).contains { choice in
            switch choice % (count + 2) {
            case count: world.store.act()
            case count + 1: actAsOperator()
            case let number: world.clients[number].act(random)
            }
        }
    }

    private func actAsOperator() -> Bool {
        guard operatorActs > 0, random.happens(oneIn: 6) else { return false }
        // A loop that was told to stop need not do what comes later.
        if phase == .ended { return false }
        operatorActs -= 1
        let choice = random.below(8)
        world.note("operator acts", choice)
        switch choice {
        case 0, 1: world.store.removeByOperator(id: random.below(world.choices.ids))
        case 2: world.store.changeEverything()
        case 3: world.onAnotherThread { world.server.reload() }
        // Sometimes several times at once, up to the end of all waits.
        case 4: repeat { drain() } while random.happens(oneIn: 2)
        default: jumpWallClock()
        }
        return true
    }

    private func jumpWallClock() {
        guard world.choices.wallClockJumps else { return }
        kernel.clock.wallOffset += .seconds(random.among([-3_600, -10, 1, 30, 86_400]))
        world.ledger.wallClockShows(kernel.clock.unixTime)
    }

    private func drain() {
        phase = .draining
        let loop = world.server.context.loop
        world.onAnotherThread {
            if !world.isDraining {
                world.isDraining = true
                loop.beginDraining()
            } else if !world.hasEndedIdleWaits {
                world.hasEndedIdleWaits = true
                loop.endIdleWaits()
            } else {
                world.isAbandoned = true
                loop.abandon()
            }
        }
        world.note("drain", world.isAbandoned ? 3 : world.hasEndedIdleWaits ? 2 : 1)
    }

    // MARK: - Time

    private func passLittleTime(until deadline: UInt64?) {
        guard random.happens(oneIn: world.choices.retention == nil ? 8 : 3) else { return }
        // The machine sleeps for an hour, or the loop gets the processor late.
        let most = world.choices.retention == nil ? 400 : 4_000
        let time = random.happens(oneIn: 40) ? UInt64.seconds(3_600) : .milliseconds(1 + random.below(most))
        passTime(until: min(kernel.clock.now + time, time < .seconds(60) ? deadline ?? .max : .max))
    }

    private func passTime(until moment: UInt64) {
        kernel.clock.now = max(kernel.clock.now, moment)
        world.ledger.wallClockShows(kernel.clock.unixTime)
        world.note("time passes", Int(moment / 1_000_000))
    }

    // MARK: - At rest

    /// Nothing can happen except that time passes: checks that nothing should have, and begins the next part of the seed.
    ///
    /// - Returns: Whether the loop's wait is over.
    private func rest(until deadline: UInt64?) -> Bool {
        // The machine has slept beyond the deadline, and the loop has not looked at its clock since.
        if let deadline, deadline <= kernel.clock.now { return true }
        world.checkAtRest()
        // A slow client does something before the loop's wait is over.
        if let next = world.clients.compactMap(\.actsAgainAt).min(), next < deadline ?? .max {
            passTime(until: next)
            return false
        }
        if let deadline, random.happens(oneIn: 2) || phase == .draining && random.happens(oneIn: 2) {
            passTime(until: deadline)
            return true
        }
        switch phase {
        case .serving, .resuming:
            phase = .resuming
            let isResumed = world.clients.reduce(false) { $1.resume() || $0 }
            if !isResumed { phase = .leaving }
        case .leaving:
            for client in world.clients where random.happens(oneIn: 2) { client.leaves = true }
            phase = .draining
        case .draining where !world.server.hasServed:
            if !world.isAbandoned {
                drain()
            } else if let deadline {
                passTime(until: deadline)
                return true
            } else {
                violation("the server waits for ever instead of stopping")
            }
        case .draining, .ended:
            if let deadline {
                passTime(until: deadline)
                return true
            }
            if phase == .ended { violation("the loop does not stop") }
            phase = .ended
            world.note("the loop is stopped", 0)
            world.onAnotherThread { world.server.context.loop.stop() }
        }
        return false
    }
}
