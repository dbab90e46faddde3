/// What the walk does with a row.
package enum WalkVerdict {
    /// Nothing: it is as it should be, or does not open.
    case stays
    /// It has expired, and is deleted.
    case expires
    /// Its value was sealed again.
    case sealed([UInt8], keyNumber: Int, RowTimes)
}

/// Visits the rows of either store: opens and counts them, and decides what is done with each.
///
/// Used by one thread.
package struct WalkVisitor: ~Copyable {
    package var report: WalkReport
    package var rules: WalkRules
    private var coder: RowCoder

    package init(_ sealing: Sealing, _ report: WalkReport, _ rules: WalkRules) {
        (self.report, self.rules) = (report, rules)
        coder = RowCoder(sealing)
    }

    /// The key that seals.
    package var activeKey: Int {
        mutating get { coder.activeKeyNumber() }
    }

    /// Visits a token.
    ///
    /// - Parameters:
    ///   - value: Its sealed value.
    ///   - keyNumber: The key that it was sealed with.
    ///   - key: Its row's key.
    ///   - times: Its times.
    ///   - version: Its version.
    ///   - name: Names the row if it does not open.
    /// - Throws: If nothing may be sealed at present.
    package mutating func visit(
        _ value: Span<UInt8>, keyNumber: Int, key: [UInt8], _ times: RowTimes, _ version: TokenVersion,
        _ name: @autoclosure () -> String
    ) throws(SealingError) -> WalkVerdict {
        report.noteToken(writtenAt: times.writtenAt)
        let isMisdated = rules.misdated.contains(times.writtenAt)
        let corrected = RowTimes(
            writtenAt: isMisdated ? rules.misdated.upperBound : times.writtenAt, expiresAt: times.expiresAt)
        if rules.deletes(corrected) { return .expires }
        do {
            try coder.open(value, keyNumber: keyNumber, key: key, times: times)
        } catch {
            report.noteUnreadable(error, name())
            return .stays
        }
        var isShown = false
        if let inspector = rules.inspector {
            let ((id, tokenInfo), text) = (TokenSealer.split(coder.text), coder.text.span)
            isShown = inspector.inspect(text.extracting(id), text.extracting(tokenInfo), version, corrected)
        }
        if !isShown { report.hasPassedOver = true }
        return try verdict(key, keyNumber, times, corrected)
    }

    /// Visits a session.
    ///
    /// - Throws: As for a token.
    package mutating func visit(_ row: SessionRow, _ name: @autoclosure () -> String) throws(SealingError)
        -> WalkVerdict
    {
        report.sessions += 1
        if rules.deletes(row) { return .expires }
        do {
            _ = try coder.open(row)
        } catch {
            report.noteUnreadable(error, name())
            return .stays
        }
        return try verdict(row.place, row.keyNumber, row.times, row.times)
    }

    private mutating func verdict(
        _ place: [UInt8], _ keyNumber: Int, _ times: RowTimes, _ corrected: RowTimes
    ) throws(SealingError) -> WalkVerdict {
        guard keyNumber != coder.presentKeyNumber || corrected != times else {
            report.noteOpened(keyNumber: keyNumber)
            return .stays
        }
        let (value, number) = try coder.sealAgain(place, corrected)
        return .sealed(value, keyNumber: number, corrected)
    }
}
