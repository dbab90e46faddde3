import ArgumentParser
import Settings
import TokenService

/// The scopes of keys that commands show, make and remove.
protocol CommandKeyScope: BearerKeyScope, ExpressibleByArgument {
    /// The file of the settings; empty if none is set.
    static func path(_ settings: Settings) -> String
    /// A path that would suit the setting.
    static var examplePath: String { get }
    /// Commands that make a key, for the help: each line is one, indented by two blanks.
    static var examplesOfAdding: String { get }
}

extension BearerKey {
    /// The names of scopes, always in the same order.
    static func names(_ scopes: Set<Scope>) -> [String] {
        Scope.allCases.filter(scopes.contains).map(\.rawValue)
    }
}
