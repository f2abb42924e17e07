"""What is built on numpy, where it is installed: pandas, scipy and torch with arrays of this package."""

import importlib

import numpy as np

import ream

MIB = 1 << 20


def pandas(pd):
    array = ream.from_array(np.arange(MIB, dtype="f8").reshape(-1, 4), name="frame")
    frame = pd.DataFrame(array, columns=list("abcd"), copy=False)
    del array
    assert frame["a"].sum() == sum(range(0, MIB, 4)) and frame.groupby(frame["a"] % 7)["d"].mean().shape == (7,)
    assert [one.name for one in ream.regions() if one.name] == ["frame"]
    ream.advise(frame.values, "cold")
    with ream.large_pages(), ream.arrays(name="made"):
        doubled = frame * 2
        joined = pd.concat([doubled, frame]).sort_values("b")
    assert joined["b"].sum() == 3 * frame["b"].sum()
    with ream.large_pages():
        texts = pd.Series(["x%d" % (n % 1000) for n in range(300000)])
        assert texts.value_counts().iloc[0] == 300


def scipy(_):
    linalg, sparse, fft = (importlib.import_module("scipy." + name) for name in ("linalg", "sparse", "fft"))
    with ream.arrays(min="1M"), ream.large_pages():
        square = ream.from_array(np.random.default_rng(7).random((600, 600)) + 600 * np.eye(600))
        assert np.allclose(linalg.solve(square, square @ np.ones(600)), 1)
        rows, columns = np.random.default_rng(7).integers(0, 20000, (2, 400000))
        matrix = sparse.csr_matrix((np.ones(400000), (rows, columns)), shape=(20000, 20000))
        assert np.allclose(matrix @ np.ones(20000), np.asarray(matrix.sum(axis=1)).ravel())
        signal = np.random.default_rng(7).random(1 << 18)
        assert np.allclose(fft.ifft(fft.fft(signal)).real, signal)


def torch(torch):
    array = ream.full((1000, 1000), 2, "f4", name="tensor")
    tensor = torch.from_numpy(array)
    del array
    assert [one.name for one in ream.regions() if one.name] == ["tensor"]
    ream.advise(tensor, "cold")
    ream.pin(tensor[:10])
    ream.unpin(tensor[:10])
    tensor += 1
    assert float(tensor.sum()) == 3e6
    del tensor
    assert [one.name for one in ream.regions() if one.name] == []
    with ream.large_pages():
        large = torch.ones(4000, 4000)
        assert float((large @ large)[0, 0]) == 4000


def main():
    for test in (pandas, scipy, torch):
        try:
            module = importlib.import_module(test.__name__)
        except ImportError:
            print("absent", test.__name__)
            continue
        test(module)
        print("ran", test.__name__)
    print("all is well")


main()
