/// Text that must not get into a log, such as a password.
///
/// Printing it shows nothing of it. It is not wiped from memory, unlike a `SecretKey`: libraries that take text keep copies anyway.
package struct SecretText: Sendable, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// The secret itself.
    package let text: String

    package init(_ text: String) {
        self.text = text
    }

    package var description: String { "(secret)" }
    package var debugDescription: String { description }
    package var customMirror: Mirror { Mirror(self, children: []) }
}
