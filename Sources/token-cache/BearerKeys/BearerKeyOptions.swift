import ArgumentParser
import Logging
import Operations
import Server
import Settings
import System
import TokenService

/// The options of all commands for keys.
struct BearerKeyOptions<Scope: CommandKeyScope>: ParsableArguments {
    @OptionGroup var configuration: ConfigurationOptions

    /// The file of the settings.
    func path() throws -> String {
        let path = Scope.path(try configuration.load())
        guard path.isEmpty else { return path }
        throw configuration.fault(
            """
            \(Scope.kind.setting) is not set, so there is no place for \(Scope.kind.plural); name a file there, such as \
            \(Scope.examplePath), and give this command the same settings as the server (--config)
            """
        )
    }

    /// Runs `body`, which changes the file; then records that in the audit log, or has a running server do so.
    ///
    /// If the change could not be recorded or the server cannot use the file, prints why and ends the command with status 1.
    func recordingChange(isAddition: Bool, _ name: String, _ body: () throws -> Void) throws {
        let settings = try configuration.load()
        let change = KeyChange(Scope.self, isAddition: isAddition, name: name)
        do {
            let logger = LogOutput(level: .warning, format: .text).logger
            guard let record = try KeyChangeRecord.open(change, settings, logger: logger) else {
                try body()
                return try report(change, settings, isAddition: isAddition, name)
            }
            defer { record.close() }
            do {
                try body()
            } catch {
                // Recorded because the file may have changed even so: perhaps only its folder could not be synced.
                record.fail()
                throw error
            }
            try record.finish()
        } catch let failure as StoreAccess.Failure {
            throw configuration.fault("\(failure)")
        }
    }

    private func report(_ change: KeyChange, _ settings: Settings, isAddition: Bool, _ name: String) throws {
        guard let fault = ServerControl.report(change, settings) else { return }
        let state =
            isAddition
            ? "added to the file, but the running server does not accept it yet"
            : "removed from the file, but the running server still accepts it"
        throw configuration.fault("the key \(name) is \(state): \(fault)")
    }

    /// Reads and replaces the file; on an error, prints it and ends the command with status 1.
    func change<Result>(_ body: (inout BearerKeys<Scope>) throws -> Result) throws -> Result {
        let path = try path()
        do {
            return try BearerKeys<Scope>.change(path, body)
        } catch let error as BearerKeyFileError<Scope> {
            throw configuration.fault("\(error)")
        } catch let error as LinkError {
            throw configuration.fault("\(error)")
        }
    }
}
