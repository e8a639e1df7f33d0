//! Words of closed lists, as rows hold them.

use sqlx::error::BoxDynError;
use sqlx::postgres::{PgHasArrayType, PgTypeInfo, PgValueRef};
use sqlx::{Decode, Postgres, Type};

use super::StoreError;
use crate::domain::text_enum::TextEnum;

/// Value of an enum of words, as a row holds it. A word that only a newer release knows is kept, and is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored<T> {
    /// Word of a value.
    Known(T),
    /// Any other word.
    Unknown(String),
}

impl<T: TextEnum> Stored<T> {
    /// Returns the value; `None` if this version does not know the word.
    pub fn known(&self) -> Option<T> {
        match self {
            Stored::Known(value) => Some(*value),
            Stored::Unknown(_) => None,
        }
    }

    /// Returns the word.
    pub fn as_str(&self) -> &str {
        match self {
            Stored::Known(value) => (*value).into(),
            Stored::Unknown(word) => word,
        }
    }

    /// Returns the value; [`StoreError::Inconsistent`] if this version does not know the word.
    pub(super) fn known_in(self, table: &'static str, column: &'static str) -> Result<T, StoreError> {
        match self {
            Stored::Known(value) => Ok(value),
            Stored::Unknown(value) => Err(StoreError::Inconsistent { table, column, value }),
        }
    }
}

impl<T> From<T> for Stored<T> {
    fn from(value: T) -> Stored<T> {
        Stored::Known(value)
    }
}

impl<T: PartialEq> PartialEq<T> for Stored<T> {
    fn eq(&self, value: &T) -> bool {
        matches!(self, Stored::Known(known) if known == value)
    }
}

impl<T> Type<Postgres> for Stored<T> {
    fn type_info() -> PgTypeInfo {
        <str as Type<Postgres>>::type_info()
    }

    fn compatible(info: &PgTypeInfo) -> bool {
        <str as Type<Postgres>>::compatible(info)
    }
}

impl<T> PgHasArrayType for Stored<T> {
    fn array_type_info() -> PgTypeInfo {
        <&str as PgHasArrayType>::array_type_info()
    }
}

impl<'r, T: TextEnum> Decode<'r, Postgres> for Stored<T> {
    fn decode(value: PgValueRef<'r>) -> Result<Stored<T>, BoxDynError> {
        let word = <&str as Decode<Postgres>>::decode(value)?;
        Ok(word.parse::<T>().map_or_else(|_| Stored::Unknown(word.to_owned()), Stored::Known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::tool::PinState;

    #[test]
    fn a_word_of_a_newer_release_is_no_value_and_stays_as_it_is() {
        let known = Stored::from(PinState::Blocked);
        assert!(known == PinState::Blocked && known != PinState::Approved);
        assert_eq!((known.known(), known.as_str()), (Some(PinState::Blocked), "blocked"));
        let newer: Stored<PinState> = Stored::Unknown("on_probation".to_owned());
        assert!(PinState::ALL.into_iter().all(|state| newer != state));
        assert_eq!((newer.known(), newer.as_str()), (None, "on_probation"));
        let error = newer.known_in("tools", "state").unwrap_err();
        assert!(error.is_unreadable() && error.to_string().contains("\"on_probation\""), "{error}");
    }
}
