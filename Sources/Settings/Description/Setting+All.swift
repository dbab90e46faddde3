extension Setting {
    /// Every setting, in the order of the sample file.
    package static let all: [Setting] =
        [listen] + administration + storage + serving + access + security + logging + limits + timeouts

    /// The keys whose change needs a restart; a section's name stands for its keys if all of them do.
    package static var keysThatNeedRestart: [String] {
        var names: [String] = []
        for setting in all where setting.effect == .atStart {
            let name = sections(of: setting.key).first(where: isWholeAtStart) ?? setting.key
            if !names.contains(name) { names.append(name) }
        }
        return names
    }

    /// The sections that a key is in, the outermost first: `store` and `store.queue` of `store.queue.max_wait`.
    private static func sections(of key: String) -> [String] {
        let names = key.split(separator: ".")
        return (1..<names.count).map { names.prefix($0).joined(separator: ".") }
    }

    private static func isWholeAtStart(_ section: String) -> Bool {
        all.allSatisfy { !$0.key.hasPrefix(section + ".") || $0.effect == .atStart }
    }
}
