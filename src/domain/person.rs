//! Persons behind API keys: separation of duties is checked per person, not per API key.

use super::id::{IdentityId, KeyId};

/// Holder of an API key, as far as the gateway knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The API key; `None` for the platform's bootstrap key.
    pub key: Option<KeyId>,
    /// First key of the line of rotations that the key belongs to; the key itself if it is no rotation.
    pub root: Option<KeyId>,
    /// Owner of the key, where somebody named one. An owner that defaults to the key's name is `None`.
    pub owner: Option<String>,
    /// E-mail address of a person who logged in; `None` for keys, whose owner may be one.
    pub email: Option<String>,
    /// Identity of the person, where an administrator named one.
    pub identity: Option<IdentityId>,
    /// Root of the key that created this one; `None` where the bootstrap key did.
    pub creator: Option<KeyId>,
    /// Roots of the keys that created other keys of its line of rotations; `None` for the bootstrap key.
    pub line_creators: Vec<Option<KeyId>>,
}

/// Fact by which the holders of two keys are one person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnePerson {
    /// The keys are one.
    SameKey,
    /// The keys belong to one line of rotations.
    Rotated,
    /// The first key made the other.
    Made,
    /// The other key made the first.
    MadeBy,
    /// Both keys have this identity.
    SameIdentity,
    /// Both keys have this owner.
    SameOwner,
    /// Both keys have this e-mail address as their owner.
    SameEmail,
}

impl Person {
    /// Holder of the platform's bootstrap key.
    pub const PLATFORM: Person = Person {
        key: None,
        root: None,
        owner: None,
        email: None,
        identity: None,
        creator: None,
        line_creators: Vec::new(),
    };

    /// Returns whether both are one person.
    pub fn is_same_as(&self, other: &Person) -> bool {
        self.same_as(other).is_some()
    }

    /// Returns the first fact by which both are one person: the same key or a rotation of it, the same identity, owner or e-mail
    /// address in any case, or one created the other or a key of its line of rotations. So the bootstrap key is one person with each key that it
    /// created, and these are persons of their own.
    pub fn same_as(&self, other: &Person) -> Option<OnePerson> {
        let made = |one: &Person, other: &Person| {
            other.key.is_some() && (one.root == other.creator || other.line_creators.contains(&one.root))
        };
        let names = |person: &Person| [&person.owner, &person.email].map(|name| name.as_deref().map(folded));
        if self.key == other.key {
            return Some(OnePerson::SameKey);
        }
        if self.root == other.root {
            return Some(OnePerson::Rotated);
        }
        if made(self, other) {
            return Some(OnePerson::Made);
        }
        if made(other, self) {
            return Some(OnePerson::MadeBy);
        }
        if self.identity.is_some() && self.identity == other.identity {
            return Some(OnePerson::SameIdentity);
        }
        let others = names(other);
        let shared = names(self)
            .into_iter()
            .flatten()
            .find(|name| others.iter().flatten().any(|other| other == name))?;
        Some(if shared.contains('@') { OnePerson::SameEmail } else { OnePerson::SameOwner })
    }
}

/// Folds an owner's name: case and outer spaces make no difference. Upper case first, as it maps more spellings of a
/// letter to one.
fn folded(owner: &str) -> String {
    owner.trim().to_uppercase().to_lowercase()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn person(key: u128, owner: Option<&str>, creator: Option<u128>) -> Person {
        let id = |n| KeyId(Uuid::from_u128(n));
        let owner = owner.map(str::to_owned);
        let (key, creator) = (Some(id(key)), creator.map(id));
        Person { key, root: key, owner, email: None, identity: None, creator, line_creators: Vec::new() }
    }

    fn with_email(email: &str, person: Person) -> Person {
        Person { email: Some(email.to_owned()), ..person }
    }

    fn rotated(root: u128, person: Person) -> Person {
        Person { root: Some(KeyId(Uuid::from_u128(root))), ..person }
    }

    fn of_line(creators: &[Option<u128>], person: Person) -> Person {
        let id = |n: &Option<u128>| n.map(|n| KeyId(Uuid::from_u128(n)));
        Person { line_creators: creators.iter().map(id).collect(), ..person }
    }

    fn identified(identity: u128, person: Person) -> Person {
        Person { identity: Some(IdentityId(Uuid::from_u128(identity))), ..person }
    }

    #[test]
    fn one_person_may_have_many_keys() {
        let plain = person(1, None, None);
        for (one, other, same) in [
            (&plain, person(1, Some("ana"), None), Some(OnePerson::SameKey)),
            (&plain, person(2, None, None), None),
            (&plain, person(2, None, Some(1)), Some(OnePerson::Made)),
            (&person(1, None, Some(3)), person(2, None, Some(3)), None),
            (&person(1, Some("Ana"), None), person(2, Some(" aNA "), None), Some(OnePerson::SameOwner)),
            (&person(1, Some("Straße"), None), person(2, Some("STRASSE"), None), Some(OnePerson::SameOwner)),
            (&person(1, Some("a@b.c"), None), person(2, Some("A@B.c"), None), Some(OnePerson::SameEmail)),
            (
                &with_email("a@b.c", person(1, Some("ana"), None)),
                person(2, Some("Ana"), None),
                Some(OnePerson::SameOwner),
            ),
            (
                &person(2, Some("A@b.c"), None),
                with_email("a@b.c", person(1, Some("ana"), None)),
                Some(OnePerson::SameEmail),
            ),
            (
                &with_email("a@b.c", person(1, Some("ana"), None)),
                with_email("a@b.c", person(2, Some("eva"), None)),
                Some(OnePerson::SameEmail),
            ),
            (
                &with_email("a@b.c", person(1, Some("ana"), None)),
                with_email("e@b.c", person(2, Some("eva"), None)),
                None,
            ),
            (&person(1, Some("ana"), None), person(2, Some("eva"), None), None),
            (&person(1, Some("ana"), Some(3)), Person::PLATFORM, None),
            (&person(1, Some("ana"), None), Person::PLATFORM, Some(OnePerson::MadeBy)),
            (&plain, Person::PLATFORM, Some(OnePerson::MadeBy)),
            (
                &identified(7, plain.clone()),
                identified(7, person(2, None, Some(3))),
                Some(OnePerson::SameIdentity),
            ),
            (&identified(7, plain.clone()), identified(8, person(2, None, Some(3))), None),
            (&identified(7, plain.clone()), person(7, None, Some(3)), None),
            (
                &identified(7, person(1, Some("ana"), None)),
                identified(8, person(2, Some("Ana"), None)),
                Some(OnePerson::SameOwner),
            ),
            (&plain, rotated(1, person(2, None, Some(3))), Some(OnePerson::Rotated)),
            (
                &rotated(1, person(4, None, Some(3))),
                rotated(1, person(2, None, Some(3))),
                Some(OnePerson::Rotated),
            ),
            (&rotated(1, person(4, None, Some(3))), person(2, None, Some(1)), Some(OnePerson::Made)),
            (&rotated(1, person(4, None, Some(3))), person(2, None, Some(4)), None),
            (&plain, of_line(&[Some(1)], person(2, None, Some(3))), Some(OnePerson::Made)),
            (&plain, of_line(&[None, Some(4)], person(2, None, Some(3))), None),
            (&of_line(&[Some(4), None], person(2, None, Some(3))), Person::PLATFORM, Some(OnePerson::MadeBy)),
            (&Person::PLATFORM, Person::PLATFORM, Some(OnePerson::SameKey)),
        ] {
            let turned = match same {
                Some(OnePerson::Made) => Some(OnePerson::MadeBy),
                Some(OnePerson::MadeBy) => Some(OnePerson::Made),
                other => other,
            };
            assert_eq!(one.same_as(&other), same, "{one:?} {other:?}");
            assert_eq!(other.same_as(one), turned, "{other:?} {one:?}");
            assert_eq!(one.is_same_as(&other), same.is_some(), "{one:?} {other:?}");
        }
    }
}
