-- Which vectors a replica searches with, if any: they are kept until a day after the last one that does.
alter table replicas add column embedding_space text;
