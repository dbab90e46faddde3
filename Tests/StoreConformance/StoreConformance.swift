import Synchronization
import TokenStore

/// What every store does, as a list of behaviours that a store's tests go through.
///
///     @Test(arguments: StoreConformance.behaviours)
///     func `the store does what every store does`(_ behaviour: StoreConformance.Behaviour) async throws {
///         try await behaviour.check { change in ... }
///     }
package enum StoreConformance {
    /// Opens the store under test; called again after a close, it opens the same one.
    ///
    /// - Parameter change: Changes the standard options.
    package typealias Opening = @Sendable (_ change: (inout StoreOptions) -> Void) throws -> any TokenStore

    /// Something that every store does.
    package struct Behaviour: Sendable, CustomStringConvertible {
        package let description: String
        private let body: @Sendable (Opening) async throws -> Void

        init(_ description: String, _ body: @escaping @Sendable (Opening) async throws -> Void) {
            self.description = description
            self.body = body
        }

        /// Throws a `Violation` when the store does something else.
        package func check(_ open: Opening) async throws {
            try await body(open)
        }
    }

    /// What a store did instead.
    package struct Violation: Error, CustomStringConvertible {
        package let description: String
    }

    package static let behaviours = reading + writing + conditions + sessions + administration

    static func expect(_ isSo: Bool, _ otherwise: @autoclosure () -> String) throws {
        if !isSo { throw Violation(description: otherwise()) }
    }

    static func expectEqual<Value: Equatable>(_ found: Value, _ expected: Value, _ what: String) throws {
        try expect(found == expected, "\(what) is \(found), not \(expected)")
    }

    /// The error of something that has to fail.
    static func error(_ body: () async throws -> Void) async throws -> StoreError {
        do {
            try await body()
        } catch let error as StoreError {
            return error
        }
        throw Violation(description: "nothing failed")
    }

    static func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }
}
