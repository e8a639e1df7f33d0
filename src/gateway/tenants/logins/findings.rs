//! Findings of a check of an issuer, bounded in number and length.

use crate::domain::text_enum::text_enum;

/// Most findings of a check.
const FINDINGS_MAX: usize = 200;
/// Longest sentence of a finding, in characters.
const SAYS_CHARS_MAX: usize = 1000;

text_enum! {
    /// Outcome of one part of a check.
    pub enum FindingGrade {
        /// All is well.
        Good = "ok",
        /// Logins work, but not as one may expect.
        Odd = "warn",
        /// Logins fail.
        Bad = "bad",
    }
}

/// Finding about an issuer, its provider or a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerFinding {
    /// Name of the part of the check.
    pub check: &'static str,
    /// Outcome.
    pub grade: FindingGrade,
    /// Sentence with what was found and, where something is wrong, what was expected.
    pub says: String,
}

/// Findings as they are made.
#[derive(Debug, Default)]
pub(super) struct IssuerFindings(Vec<IssuerFinding>);

impl IssuerFindings {
    pub(super) fn good(&mut self, check: &'static str, says: impl AsRef<str>) {
        self.add(check, FindingGrade::Good, says.as_ref());
    }

    pub(super) fn odd(&mut self, check: &'static str, says: impl AsRef<str>) {
        self.add(check, FindingGrade::Odd, says.as_ref());
    }

    pub(super) fn bad(&mut self, check: &'static str, says: impl AsRef<str>) {
        self.add(check, FindingGrade::Bad, says.as_ref());
    }

    /// Adds a finding; above the bound, it is left out.
    fn add(&mut self, check: &'static str, grade: FindingGrade, says: &str) {
        if self.0.len() < FINDINGS_MAX {
            let says = says.chars().filter(|c| !c.is_control()).take(SAYS_CHARS_MAX).collect();
            self.0.push(IssuerFinding { check, grade, says });
        }
    }

    /// Returns whether a finding is bad.
    pub(super) fn has_bad(&self) -> bool {
        self.0.iter().any(|finding| finding.grade == FindingGrade::Bad)
    }

    pub(super) fn append(&mut self, mut more: IssuerFindings) {
        self.0.append(&mut more.0);
        self.0.truncate(FINDINGS_MAX);
    }

    pub(super) fn into_vec(self) -> Vec<IssuerFinding> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_bounded() {
        let mut findings = IssuerFindings::default();
        for n in 0..300 {
            findings.good("x", format!("{n}\n{}", "é".repeat(2000)));
        }
        assert!(!findings.has_bad());
        let mut all = IssuerFindings::default();
        all.bad("y", "z");
        all.append(findings);
        assert!(all.has_bad());
        let all = all.into_vec();
        assert_eq!(all.len(), FINDINGS_MAX);
        assert!(all.iter().all(|finding| finding.says.chars().count() <= SAYS_CHARS_MAX));
        assert!(!all[1].says.contains('\n'));
    }
}
