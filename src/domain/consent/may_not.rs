//! Reasons for which somebody may not decide a permission request.

use crate::domain::person::OnePerson;
use crate::domain::policy::Assurance;

/// Command by which a key for somebody who answers is made, as [`MayNotDecide::text`] names it.
pub const ADD_APPROVER: &str = "mcpproxy key add --role approver --owner NAME";

/// Reason for which somebody may not decide a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayNotDecide {
    /// The role does not answer permission requests.
    NotApprover,
    /// The request is the own one, or that of the same person.
    SelfApproval {
        /// Fact by which they are one person.
        same: OnePerson,
        /// Kind of answer that the request needs.
        needed: Assurance,
    },
}

impl MayNotDecide {
    /// Returns the code on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            MayNotDecide::NotApprover => "not_approver",
            MayNotDecide::SelfApproval { .. } => "self_approval",
        }
    }

    /// Returns the reason in words, with what helps. It names no key and no person.
    pub fn text(self) -> String {
        let (same, needed) = match self {
            MayNotDecide::NotApprover => {
                return "a key of this role may not decide permission requests; it takes one of approver, admin, platform"
                    .to_owned();
            }
            MayNotDecide::SelfApproval { same, needed } => (same, needed),
        };
        let fact = match same {
            OnePerson::SameKey => "this is the key that asked",
            OnePerson::Rotated => "your key and the one that asked are rotations of one key",
            OnePerson::Made => "your key made the key that asked",
            OnePerson::MadeBy => "the key that asked made yours",
            OnePerson::SameIdentity => "your key and the one that asked have the same identity_id",
            OnePerson::SameOwner => "your key and the one that asked have the same owner",
            OnePerson::SameEmail => "your key and the one that asked have the same e-mail address as owner",
        };
        let one = match same {
            OnePerson::SameKey => "",
            _ => ", so both are one person",
        };
        let other = match (same, needed) {
            // another key of the person is enough
            (OnePerson::SameKey | OnePerson::Rotated, Assurance::Client) => "another key",
            (OnePerson::SameKey | OnePerson::Rotated | OnePerson::MadeBy, _) => {
                "a key of another person, which the asking key did not make,"
            }
            _ => "a key of another person",
        };
        format!(
            "nobody allows their own call here: {fact}{one}. It takes {other} with role approver or admin; an admin makes \
             one: {ADD_APPROVER}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_is_said_with_what_helps() {
        use Assurance::{Approver, Client};
        for (same, needed, fact, helps) in [
            (OnePerson::SameKey, Client, "this is the key that asked. ", "It takes another key with role"),
            (
                OnePerson::SameKey,
                Approver,
                "this is the key that asked. ",
                "which the asking key did not make",
            ),
            (OnePerson::Rotated, Client, "rotations of one key, so", "It takes another key with role"),
            (OnePerson::Rotated, Approver, "rotations of one key, so", "which the asking key did not make"),
            (
                OnePerson::Made,
                Approver,
                "your key made the key that asked, so both",
                "a key of another person with",
            ),
            (
                OnePerson::MadeBy,
                Approver,
                "the key that asked made yours",
                "which the asking key did not make",
            ),
            (OnePerson::SameIdentity, Approver, "the same identity_id", "a key of another person with"),
            (OnePerson::SameOwner, Approver, "the same owner, so", "a key of another person with"),
            (
                OnePerson::SameEmail,
                Approver,
                "the same e-mail address as owner",
                "a key of another person with",
            ),
        ] {
            let why = MayNotDecide::SelfApproval { same, needed };
            let text = why.text();
            assert!(text.contains(fact) && text.contains(helps) && text.ends_with(ADD_APPROVER), "{text}");
            assert_eq!(why.as_str(), "self_approval");
        }
    }
}
