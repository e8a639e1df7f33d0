//! Readers of fields whose type is not the one that stands in a file.

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

pub(super) fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u32::deserialize(deserializer).map(|seconds| Duration::from_secs(seconds.into()))
}

pub(super) fn milliseconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u32::deserialize(deserializer).map(|milliseconds| Duration::from_millis(milliseconds.into()))
}

pub(super) fn zero_is_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    u32::deserialize(deserializer).map(|number| Some(number).filter(|number| *number > 0))
}

pub(super) fn optional_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(|text| Some(text).filter(|text| !text.is_empty()))
}

pub(super) fn optional_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    let text = optional_text(deserializer)?;
    text.map(|text| text.parse().map_err(|_| D::Error::custom("an address"))).transpose()
}

pub(super) fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(|_| D::Error::custom("a network"))).collect()
}
