#if PostgreSQL
internal import Dispatch
internal import Synchronization
internal import TokenStore

/// Looks at all hosts of the database, for the doctor.
struct DatabaseInspector: StoreInspector {
    private let options: PostgresOptions

    init(_ options: PostgresOptions) {
        self.options = options
    }

    func inspect() -> StoreInspection {
        let target: ConnectionTarget
        do throws(PostgresError) {
            target = try ConnectionTarget(url: options.url, password: options.password)
        } catch {
            var inspection = StoreInspection()
            inspection.findings = [.problem("\(error)", "correct store.url")]
            return inspection
        }
        let found = Mutex<[Int: HostInspection]>([:])
        // At once, as a host that does not answer takes its time.
        DispatchQueue.concurrentPerform(iterations: target.hosts.count) { index in
            let host = HostInspection(target, target.hosts[index], within: options.timeout)
            found.withLock { $0[index] = host }
        }
        let hosts = found.withLock { found in target.hosts.indices.compactMap { found[$0] } }
        return InspectionRules(hosts, options.durability).inspection
    }
}
#endif
