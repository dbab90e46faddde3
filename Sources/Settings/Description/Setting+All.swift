extension Setting {
    /// Every setting, in the order of the sample file.
    package static let all: [Setting] =
        [listen] + administration + storage + serving + security + logging + limits + timeouts

    /// The keys whose change needs a restart; a section's name stands for its keys if all of them do.
    package static var keysThatNeedRestart: [String] {
        var names: [String] = []
        for setting in all where setting.effect == .atStart {
            let section = setting.key.prefix { $0 != "." }
            let siblings = all.filter { $0.key.hasPrefix(section + ".") }
            let isWhole = !siblings.isEmpty && siblings.allSatisfy { $0.effect == .atStart }
            let name = isWhole ? String(section) : setting.key
            if !names.contains(name) { names.append(name) }
        }
        return names
    }
}
