package import Audit
internal import EventLoop
internal import Logging
internal import Synchronization
internal import System

extension Server {
    private static let fileCheckInterval = Duration.seconds(2)
    private static let ticketKeyLifetime = Duration.seconds(86_400)

    /// Reads settings and files again, and applies the settings that can change while the server runs.
    ///
    /// - Parameters:
    ///   - reason: What caused the reload, such as `SIGHUP received`; begins the line in the log.
    ///   - actor: Who it was, for the audit log.
    package func reload(_ reason: String, by actor: AuditEvent.Actor) async -> ReloadOutcome {
        notifier.send(.reloading(since: .now))
        let outcome = await reloader.reload(reason)
        // `stopping` has to stay the last message that the service manager receives.
        if !isDraining.load(ordering: .relaxed) { notifier.send(.ready) }
        await record(.reload, outcome.isReloaded ? .ok : .failed, by: actor).value
        return outcome
    }

    func reload(on hangUps: AsyncStream<Signal>) async {
        for await signal in hangUps { _ = await reload("\(signal) received", by: .signal("\(signal)")) }
    }

    /// Logs what a command did with an API key, and takes it over at once.
    ///
    /// - Parameter act: Who did it and what, for the log.
    /// - Returns: Why the server cannot use the file; nil if it can.
    package func noteKeyChange(_ act: String) async -> String? {
        logger.notice("\(act)")
        // The file is read even if it was read since the change, so that the command learns of a fault too.
        return await access.reloadChangedFiles(logger, [.apiKeys], rereads: true).first
    }

    /// Reads the files of keys again when they change.
    func reloadChangedKeys() async {
        await withDiscardingTaskGroup { group in
            for file in AccessResources.KeyFile.allCases {
                group.addTask { [self] in
                    while (try? await Task.sleep(for: Self.fileCheckInterval)) != nil {
                        let before = access.jwtKeys?.content
                        await access.reloadChangedFiles(logger, [file])
                        guard file == .jwtKeys, access.jwtKeys?.content !== before else { continue }
                        for worker in workers { worker.loop.execute { worker.useJWTKeys() } }
                    }
                }
            }
        }
    }

    /// Loads certificates when their files change, and creates new session ticket keys once a day.
    func reloadChangedCertificates() async {
        guard listeners.tls != nil else { return }
        var lastReload = ContinuousClock.now
        while (try? await Task.sleep(for: Self.fileCheckInterval)) != nil {
            let isDue = ContinuousClock.now - lastReload > Self.ticketKeyLifetime
            if await reloader.reloadCertificates(isDue ? "a day has passed" : nil) { lastReload = .now }
        }
    }
}
