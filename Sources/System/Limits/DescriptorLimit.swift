/// How many descriptors this process may have open.
package enum DescriptorLimit {
    /// The soft limit, which is the one in force; 0 if it cannot be told.
    package static var current: Int { Int(clamping: ResourceLimit.descriptors.values?.soft ?? 0) }

    /// What the soft limit can be raised to; 0 if it cannot be told.
    package static var highest: Int { Int(clamping: ResourceLimit.descriptors.values?.hard ?? 0) }

    /// Raises the soft limit to the hard one, if that is allowed, and returns the soft limit.
    package static func raise() -> Int {
        guard let hard = ResourceLimit.descriptors.values?.hard else { return 0 }
        ResourceLimit.descriptors.set(soft: hard, hard: hard)
        return current
    }
}
