import CLibFuzzer
import FuzzTargets
import Glibc
import TestSupport

/// Runs one target under libFuzzer: `fuzz TARGET [LIBFUZZER'S ARGUMENTS]`; without arguments it prints the targets' names.
@main
enum Fuzzer {
    static func main() {
        guard CommandLine.arguments.count > 1 else {
            for target in FuzzTarget.all { print(target.name) }
            return
        }
        _ = target
        // libFuzzer takes the name for that of the program.
        var arguments: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>? = CommandLine.unsafeArgv + 1
        var count = CommandLine.argc - 1
        exit(LLVMFuzzerRunDriver(&count, &arguments, check))
    }

    /// The one that the first argument names.
    static let target: FuzzTarget = {
        let name = CommandLine.arguments[1]
        guard let target = FuzzTarget.all.first(where: { $0.name == name }) else {
            print("there is no target \(name); there are \(FuzzTarget.all.map(\.name).joined(separator: ", "))")
            exit(2)
        }
        return target
    }()
}

/// Called by libFuzzer with each input.
///
/// It has this name because libFuzzer's own `main`, which is not used, refers to it.
@_cdecl("LLVMFuzzerTestOneInput")
public func check(_ bytes: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    do {
        try Fuzzer.target.check([UInt8](UnsafeBufferPointer(start: bytes, count: count)))
        return 0
    } catch {
        // libFuzzer keeps the input of whatever ends the process.
        fatalError("\(error)")
    }
}

/// Called by libFuzzer for a new input: half of them get words that mean something to the target, which random changes of bytes
/// hardly ever make.
@_cdecl("LLVMFuzzerCustomMutator")
public func mutate(_ bytes: UnsafeMutablePointer<UInt8>, _ count: Int, _ limit: Int, _ seed: CUnsignedInt) -> Int {
    guard seed.isMultiple(of: 2) else { return LLVMFuzzerMutate(bytes, count, limit) }
    var random = SeededGenerator(seed: UInt64(seed))
    let input = [UInt8](UnsafeBufferPointer(start: bytes, count: count))
    let mutated = Mutation.mutated(input, words: Fuzzer.target.words, using: &random).prefix(limit)
    _ = UnsafeMutableBufferPointer(start: bytes, count: limit).update(fromContentsOf: mutated)
    return mutated.count
}
