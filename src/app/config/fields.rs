//! Readers of fields whose type is not the one that stands in a file.

use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer};

pub(super) fn zero_is_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    u32::deserialize(deserializer).map(|number| Some(number).filter(|number| *number > 0))
}

/// Reads a text; the empty one is `None`.
pub(super) fn optional<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    (!text.is_empty()).then(|| T::deserialize(text.into_deserializer())).transpose()
}
