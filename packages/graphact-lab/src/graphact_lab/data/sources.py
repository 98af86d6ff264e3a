"""Every file of every data set: where it lies, where it comes from, and its hash."""

from dataclasses import dataclass

DATA_SETS = {  # a line for each
    "ml-100k": "MovieLens 100K: ratings of 1682 films by 943 users",
    "molene": "Molène: hourly temperatures of weather stations in Brittany",
    "planetoid": "Cora, CiteSeer and PubMed: citations between papers, with their public splits",
    "heterophily": "minesweeper, tolokers, actor, filtered chameleon and squirrel, wisconsin: ten given splits",
    "attributed": "BlogCatalog and Flickr: friends, and the words that they use",
    "tu": "MUTAG, PTC_MR, PROTEINS, NCI1 and NCI109: molecules and proteins of TUDataset, a class each",
}


@dataclass(frozen=True)
class DataFile:
    """One file of a dataset.

    Attributes:
        path: where it lies inside a data directory, with forward slashes.
        sha256: SHA-256 of its content.
        url: where it comes from.
        member: its name inside the zip archive at ``url``; None when ``url`` is the file itself.
    """

    path: str
    sha256: str
    url: str
    member: str | None = None


# MovieLens 100K of GroupLens: for research, not to be redistributed.
MOVIELENS = "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
# Molène: hourly observations of Météo-France (Licence Ouverte), first published on data.gouv.fr as "Données horaires
# des 55 stations terrestres de la zone Large Molène sur un mois". This repository keeps that archive unchanged, with
# the list of stations as a CSV file.
MOLENE = (
    "https://raw.githubusercontent.com/bgirault-usc/Molene-Dataset/2b3c9faa4aceb5d037a6e09fbb638362d9d67b48"
    "/Original_Data"
)
# Cora, CiteSeer and PubMed as Yang et al. (2016) published them, MIT licence.
PLANETOID = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data"
# Graphs whose neighbours are often of other classes, cleaned and split by Platonov et al. (2023), MIT licence.
HETEROPHILY = "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data"
# BlogCatalog and Flickr as the authors of CoLA keep them; research data, no licence stated.
ATTRIBUTED = "https://raw.githubusercontent.com/TrustAGI-Lab/CoLA/main/raw_dataset"
# Molecules and proteins of TUDataset (Morris et al. 2020), no licence stated; nested splits of two of the sets by
# Errica et al. (2020).
TU = "https://www.chrsmrrs.com/graphkerneldatasets"
TU_SPLITS = (
    "https://raw.githubusercontent.com/diningphil/gnn-comparison/097d0a2c172149075e40ece474c30c222526dbcb"
    "/data_splits/CHEMICAL"
)
FILMS = {
    "ml-100k/u.data": "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
    "ml-100k/u.item": "553841ebc7de3a0fd0d6b62a204ea30c1e651aacfb2814c7a6584ac52f2c5701",
}
WEATHER = {
    "RADOMEH.tar.gz": "15755616c0de991571518eb3aa319dedbb668955058335e3abc461827b32c803",
    "weather_stations.csv": "0c17e597f87ff7c171c1cf3d150cc7c7cd449a774f425bde33094fffd595ae81",
}
CITATIONS = {
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    "ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
}
HETEROPHILOUS = {
    "actor.npz": "c350eef06b2c2a9bf8218be2b57cac6d4003d0922eb597a039e9123f75817816",
    "chameleon_filtered.npz": "bf46f07e1fb5249280447e5fe3100f3e82fc4b93ad1e13ffcfdec924b6ac0bb5",
    "minesweeper.npz": "e664c8dacf1e8ac466c2c09ed4b237bd2c5541f47a6eae9c6092cb87f16412b3",
    "squirrel_filtered.npz": "f06370ffb3116c5de8b7a600005400b2293c025e0ce2f6916d8201a825505ac7",
    "tolokers.npz": "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667",
    "wisconsin.npz": "2543c89838cfc75f737f7c4664cc1d097f8268602c20b2d1bd4f21407df9c074",
}
FRIENDS = {
    "BlogCatalog": "886e1d8dec043588247ef7188fe6459f2ba657b6b9211d73f255d28b42f06b0c",
    "Flickr": "1493f3f261395b232dd37845beae9215c0abccc9d63902a3cc0af7fd4f0972cd",
}
MOLECULE_FILES = ("A", "graph_indicator", "graph_labels", "node_labels")
MOLECULES = {
    "MUTAG": (
        "d9656ca7493f3445d737c711710bb36fd432dddd1c0ea32e1d4713c86ebd28e2",
        "7d520a4d6c7961c0cdeabe076d8fe27e795b6d373485c9a2b744987e560a2056",
        "a1518ea39ba3426bd42f57396b9c4baffe68e9adc718caeeab0119c6591a5f2c",
        "678f429965490e84dd27713017538c995fc05d1621beac910848b600015ee863",
    ),
    "PTC_MR": (
        "f79523ff94dfbef539e5602a8ac1931a50a2800f33fa1d30e5e31725289b5202",
        "d52754f3cbc54e29324f884b4c17200c16e06db0c499afae300b4fa1bb6d794b",
        "64210accbe4c6c027535b1294e0da652b1f539667f7a2d4bf5121dcd8b00a224",
        "cc50d1e1c5f4c98b2100cf50c5ddd88ff28b419a9180d531046b75ce22983235",
    ),
    "PROTEINS_full": (
        "4c4b33e272fc95cac6d27ed6d5d12b9a852c8610e91fff59f8f0dbdd5a20df67",
        "8d4ff1e852a5c28561e9bffb44cf9490bc552b13a3b6156dd12dc7f44e9afc4a",
        "c0ef9810c440775252872318d0c8adc385588e14bc4c47a2c34aa96ee3c7cdcd",
        "f758e8ad3d6e3c026b50833d75f6f90735b94eb3345e4243707f495ca8afea8d",
    ),
    "NCI1": (
        "2c028eda59a5fe96e2265a63d9ac236901bd9a7dc658498be13cd704a703076d",
        "ffe5acfa754b057d5ce0dc725c5aadb631628161886cc040d38c719635257dc5",
        "fae44681e70113f496256ae87eaac33b7836e3a97fe8e023933b84fde6a5c8a2",
        "dc0a22b6cbff0c939de00373e823977ba32b358f560e4288d7602f7b51407ee2",
    ),
    "NCI109": (
        "9c0ae8c1e631f771663de1e095eb36604f4feeb512e46b90b0409f05f876bab6",
        "f86bb0249bf985be397f46c493879022cb068b1d4331215151442de1738c9163",
        "8ab9932d5347b935e3aaa7be2f787cc78860fa1af9df836dd3f03cde6939b640",
        "d2ceda711b4ea4218909e5527325374d7e50c698b0d8a22567390a5526dbd6bc",
    ),
}
MOLECULE_SPLITS = {
    "NCI1_splits.json": "1c961b85422fb557edade036f614869bb996323efd21dbfa4b40ff1b80304924",
    "PROTEINS_full_splits.json": "785c4225474a5467427b704e424602e6a4b88ebd3463cf152d3ec82d2422cd6a",
}
DATASETS: dict[str, tuple[DataFile, ...]] = {
    "ml-100k": tuple(DataFile(name, sha256, MOVIELENS, member=name) for name, sha256 in FILMS.items()),
    "molene": tuple(DataFile(f"molene/{name}", sha256, f"{MOLENE}/{name}") for name, sha256 in WEATHER.items()),
    "planetoid": tuple(
        DataFile(f"planetoid/{name}", sha256, f"{PLANETOID}/{name}") for name, sha256 in CITATIONS.items()
    ),
    "heterophily": tuple(
        DataFile(f"heterophily/{name}", sha256, f"{HETEROPHILY}/{name}") for name, sha256 in HETEROPHILOUS.items()
    ),
    "attributed": tuple(
        DataFile(f"attributed/{name}.mat", sha256, f"{ATTRIBUTED}/{name}/{name}.mat")
        for name, sha256 in FRIENDS.items()
    ),
    "tu": (
        *(
            DataFile(f"tu/{name}/{name}_{part}.txt", sha256, f"{TU}/{name}.zip", member=f"{name}/{name}_{part}.txt")
            for name, sums in MOLECULES.items()
            for part, sha256 in zip(MOLECULE_FILES, sums, strict=True)
        ),
        *(DataFile(f"tu/splits/{name}", sha256, f"{TU_SPLITS}/{name}") for name, sha256 in MOLECULE_SPLITS.items()),
    ),
}
