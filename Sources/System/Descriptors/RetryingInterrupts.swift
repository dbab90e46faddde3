public import Glibc

/// Repeats a system call for as long as a signal interrupts it; every other result is for the caller to judge.
@inlinable @inline(__always)
package func retryingInterrupts<Result: FixedWidthInteger>(_ call: () -> Result) -> Result {
    while true {
        let result = call()
        if result != -1 || errno != EINTR { return result }
    }
}
