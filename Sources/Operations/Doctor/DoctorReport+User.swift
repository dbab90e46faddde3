internal import FoundationEssentials
internal import System

/// Reports of the doctor's process with the rights of the server's user.
extension DoctorReport {
    /// What the doctor reports in a process of the server's user.
    ///
    /// - Parameter arguments: Those of this process, without the program's name.
    package init(by user: ServerUser, _ arguments: [String]) throws(OtherUsersProcess.Obstacle) {
        let outcome = try OtherUsersProcess.run(user, arguments.filter { $0 != "--json" } + ["--json"])
        guard let report = try? OperationsJSON.decode(DoctorReport.self, from: Data(outcome.output)) else {
            throw OtherUsersProcess.Obstacle(
                reason: "the doctor's process of \(user.account.name) has not reported",
                advice: "look above for what it printed")
        }
        self = report
    }

    /// Says that the findings are root's own, and why.
    package mutating func noteObstacle(_ obstacle: OtherUsersProcess.Obstacle, _ user: ServerUser) {
        let text = "everything was tried as root, who may do more than \(user.account.name), as \(obstacle.reason)"
        // In the place of what only a process of that user can say.
        findings.removeAll { $0.topic == Doctor.userTopic }
        findings.append(
            obstacle.advice.map { .warning(Doctor.userTopic, text, $0) } ?? .ok(Doctor.userTopic, text))
    }
}
