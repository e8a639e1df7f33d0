//! Enums whose values are words in the database, on the wire or in settings.

use std::str::FromStr;

/// Defines an enum from one list of its values and their words.
///
/// The macro makes the enum with `ALL`, `WORDS`, `as_str` and `parse`, the traits of serde, and those by which generic code
/// reads and writes words: [`FromStr`] and [`Into`] for `&'static str`. Attributes and documentation are passed on; `Clone`,
/// `Copy`, `Debug`, `PartialEq`, `Eq` and `Hash` are derived.
macro_rules! text_enum {
    (
        $(#[$about:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$of_value:meta])* $value:ident = $word:literal),+ $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        $visibility enum $name {
            $($(#[$of_value])* #[serde(rename = $word)] $value),+
        }

        impl $name {
            /// All values, in order.
            pub const ALL: [$name; $name::WORDS.len()] = [$($name::$value),+];
            /// Words of all values, in order.
            pub const WORDS: [&'static str; [$($word),+].len()] = [$($word),+];

            /// Returns the word of the value.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$value => $word),+
                }
            }

            /// Parses a word; `None` for any other text.
            pub fn parse(text: &str) -> Option<$name> {
                match text {
                    $($word => Some($name::$value),)+
                    _ => None,
                }
            }
        }

        impl From<$name> for &'static str {
            fn from(value: $name) -> &'static str {
                value.as_str()
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::domain::text_enum::UnknownWord;

            fn from_str(text: &str) -> Result<$name, Self::Err> {
                $name::parse(text).ok_or($crate::domain::text_enum::UnknownWord)
            }
        }
    };
}
pub(crate) use text_enum;

/// Text that is no word of an enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWord;

/// Enum of words, as generic code needs it.
pub trait TextEnum: Copy + PartialEq + FromStr + Into<&'static str> {}

impl<T: Copy + PartialEq + FromStr + Into<&'static str>> TextEnum for T {}

#[cfg(test)]
mod tests {
    use super::*;

    text_enum! {
        /// Outcome of an attempt.
        #[derive(PartialOrd)]
        enum Ended {
            /// As it should.
            Well = "success",
            /// Otherwise.
            Badly = "upstream/error",
        }
    }

    #[test]
    fn words_go_both_ways() {
        assert_eq!(Ended::ALL, [Ended::Well, Ended::Badly]);
        assert_eq!(Ended::WORDS, ["success", "upstream/error"]);
        for ended in Ended::ALL {
            let word: &'static str = ended.into();
            assert_eq!((Ended::parse(word), word.parse()), (Some(ended), Ok(ended)));
            assert_eq!(serde_json::to_value(ended).unwrap(), word);
            assert_eq!(serde_json::from_value::<Ended>(word.into()).unwrap(), ended);
        }
        for other in ["", "Success", "success ", "upstream"] {
            assert_eq!((Ended::parse(other), other.parse::<Ended>()), (None, Err(UnknownWord)), "{other:?}");
        }
        assert!(Ended::Well < Ended::Badly);
    }
}
